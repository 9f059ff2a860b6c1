// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/image.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <functional>
#include <random>

#include "tests/data/temp_folder.hpp"
#include "tests/images/image_bytes.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr ImageSize size{7, 5};

/// Returns (height, width, channels) with a value for every sample.
std::vector<std::uint8_t> samples_of(int channels, const std::function<std::uint8_t(int)>& value) {
  std::vector<std::uint8_t> out;
  for (int at = 0; at < 35 * channels; ++at) out.push_back(value(at));
  return out;
}

std::vector<std::uint8_t> doubled(const std::vector<std::uint8_t>& bytes) {
  std::vector<std::uint8_t> out;
  for (const std::uint8_t byte : bytes) out.insert(out.end(), {byte, byte});  // 257 * byte, big-endian
  return out;
}

/// Converts the file's samples to RGB by the rule of its colour type.
std::vector<std::uint8_t> rgb_of(const PngForm& form, const std::vector<std::uint8_t>& samples) {
  const std::size_t channels = form.colour_type == 0 || form.colour_type == 3 ? 1
                               : form.colour_type == 4                        ? 2
                               : form.colour_type == 2                        ? 3
                                                                              : 4;
  const auto on_white = [](int colour, int alpha) { return (colour * alpha + 255 * (255 - alpha) + 127) / 255; };
  std::vector<std::uint8_t> out;
  for (std::size_t at = 0; at < samples.size(); at += channels) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      int colour = samples[at + (channels > 2 ? channel : 0)];
      int alpha = channels % 2 == 0 ? samples[at + channels - 1] : 255;
      if (form.colour_type == 3) {
        const auto index = static_cast<std::size_t>(colour);
        if (index < form.palette_alpha.size()) alpha = form.palette_alpha[index];
        colour = form.palette[index * 3 + channel];
      } else if (form.depth < 8) {
        colour = colour * 255 / ((1 << form.depth) - 1);
      }
      out.push_back(static_cast<std::uint8_t>(on_white(colour, alpha)));
    }
  }
  return out;
}

std::string reason(const std::filesystem::path& file) {
  const auto image = decode_image(file);
  return image.ok() ? "accepted" : image.error().message;
}

TEST(Image, a_png_of_every_colour_type_and_depth_reads_exactly) {
  const TempFolder folder;
  const std::vector<std::uint8_t> palette{10, 20, 30, 200, 100, 0, 0, 0, 0, 255, 255, 255};
  std::vector<PngForm> forms;
  for (const bool interlaced : {false, true}) {
    for (const int depth : {1, 2, 4, 8, 16}) forms.push_back({0, depth, interlaced, {}, {}});
    for (const int colour_type : {2, 4, 6}) {
      for (const int depth : {8, 16}) forms.push_back({colour_type, depth, interlaced, {}, {}});
    }
    for (const int depth : {2, 4, 8}) {
      forms.push_back({3, depth, interlaced, palette, {}});
      forms.push_back({3, depth, interlaced, palette, {0, 128}});
    }
  }
  for (const PngForm& form : forms) {
    SCOPED_TRACE("colour type " + std::to_string(form.colour_type) + ", depth " + std::to_string(form.depth) +
                 (form.interlaced ? ", interlaced" : ""));
    const int channels = form.colour_type == 0 || form.colour_type == 3 ? 1
                         : form.colour_type == 4                        ? 2
                         : form.colour_type == 2                        ? 3
                                                                        : 4;
    const int most = form.colour_type == 3 ? 4 : form.depth < 8 ? 1 << form.depth : 256;
    const auto samples = samples_of(channels, [&](int at) { return static_cast<std::uint8_t>(at * 37 % most); });
    const auto file = folder.write("a.png", png_bytes(form, size, form.depth == 16 ? doubled(samples) : samples));
    const auto image = decode_image(file);
    ASSERT_TRUE(image.ok()) << image.error().message;
    EXPECT_EQ(image->size(), size);
    EXPECT_EQ(image->pixels, rgb_of(form, samples));
    EXPECT_EQ(image_size(file).value_or_throw(), size);
  }
}

TEST(Image, a_jpeg_reads_to_within_its_compression) {
  const TempFolder folder;
  const auto expect_colour = [&](JpegForm form, const std::vector<std::uint8_t>& pixel, std::array<int, 3> expected) {
    std::vector<std::uint8_t> samples;
    for (int at = 0; at < 35; ++at) samples.insert(samples.end(), pixel.begin(), pixel.end());
    const auto file = folder.write("a.bin", jpeg_bytes(form, size, samples));  // the file name does not matter
    const auto image = decode_image(file);
    ASSERT_TRUE(image.ok()) << image.error().message;
    EXPECT_EQ(image->size(), size);
    EXPECT_EQ(*image_size(file), size);
    // With one colour everywhere, only the rounding of the colour conversion and of a coefficient is lost.
    for (std::size_t at = 0; at < image->pixels.size(); ++at) {
      ASSERT_NEAR(image->pixels[at], expected[at % 3], 2) << "at " << at;
    }
  };
  expect_colour(JpegForm::gray, {90}, {90, 90, 90});
  expect_colour(JpegForm::colour, {200, 40, 90}, {200, 40, 90});
  expect_colour(JpegForm::inks_of_adobe, {200, 40, 90, 255}, {200, 40, 90});
  expect_colour(JpegForm::inks_of_adobe, {200, 40, 90, 128}, {100, 20, 45});
  expect_colour(JpegForm::inks, {55, 215, 165, 0}, {200, 40, 90});
}

TEST(Image, a_webp_reads_exactly_or_to_within_its_compression) {
  const TempFolder folder;
  const auto on_white = [](int colour, int alpha) { return (colour * alpha + 255 * (255 - alpha) + 127) / 255; };
  for (const bool alpha : {false, true}) {
    const std::size_t channels = alpha ? 4 : 3;
    const auto various =
        samples_of(static_cast<int>(channels), [](int at) { return static_cast<std::uint8_t>(at * 29); });
    const auto exact = decode_image(folder.write("a.jpg", webp_bytes(true, alpha, size, various)));  // by content
    ASSERT_TRUE(exact.ok()) << exact.error().message;
    EXPECT_EQ(exact->size(), size);
    std::vector<std::uint8_t> plain;
    for (int at = 0; at < 35; ++at) {
      plain.insert(plain.end(), {200, 40, 90});
      if (alpha) plain.push_back(128);
    }
    const auto file = folder.write("a.webp", webp_bytes(false, alpha, size, plain));
    const auto lossy = decode_image(file);
    ASSERT_TRUE(lossy.ok()) << lossy.error().message;
    EXPECT_EQ(*image_size(file), size);
    constexpr std::array<int, 3> colour{200, 40, 90};
    for (std::size_t at = 0; at < 105; ++at) {
      const std::size_t pixel = at / 3 * channels, channel = at % 3;
      const int opacity = alpha ? various[pixel + 3] : 255;
      ASSERT_EQ(exact->pixels[at], on_white(various[pixel + channel], opacity)) << "at " << at;
      ASSERT_NEAR(lossy->pixels[at], on_white(colour[channel], alpha ? 128 : 255), 3) << "at " << at;
    }
  }
}

TEST(Image, an_animation_is_refused) {
  const TempFolder folder;
  const std::string still = webp_bytes(true, false, size, samples_of(3, [](int) { return std::uint8_t{9}; }));
  const auto file = folder.write("a.webp", webp_extended(still, size, 2, 1));
  EXPECT_EQ(reason(file), file.string() + ": an animation; give its images as separate files");
}

TEST(Image, a_written_png_reads_back_the_same) {
  const TempFolder folder;
  const Image image{7, 5, samples_of(3, [](int at) { return static_cast<std::uint8_t>(at * 29); })};
  const auto bytes = encode_png(image);
  ASSERT_TRUE(bytes.ok());
  const auto back = decode_image(folder.write("a.png", *bytes));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->pixels, image.pixels);
}

TEST(Image, what_is_no_picture_is_named_with_the_file_and_the_reason) {
  const TempFolder folder;
  const auto missing = folder.path() / "missing.png";
  EXPECT_EQ(reason(missing), missing.string() + ": does not exist");
  EXPECT_THAT(reason(folder.write("a.png", "no picture at all")),
              HasSubstr("a.png: not an image: neither PNG nor JPEG nor WebP"));
  EXPECT_THAT(reason(folder.write("a.png", "")), HasSubstr("the file is empty"));
  EXPECT_THAT(reason(folder.write("a.png", "\x89PN")), HasSubstr("truncated: only 3 bytes"));
  EXPECT_THAT(reason(folder.path()), HasSubstr("a folder, not an image"));
  EXPECT_EQ(image_size(missing).error().message, missing.string() + ": does not exist");
  EXPECT_EQ(image_size(missing).error().code, ErrorCode::not_found);
}

TEST(Image, every_truncation_is_an_error_that_says_so) {
  const TempFolder folder;
  const auto samples = samples_of(3, [](int at) { return static_cast<std::uint8_t>(at * 91 % 251); });
  const std::string png = png_bytes({}, size, samples);
  const std::string jpeg = jpeg_bytes(JpegForm::colour, size, samples);
  // A PNG is complete without its closing chunk of 12 bytes, a JPEG without its closing marker of 2.
  for (std::size_t count = 9; count < png.size() - 12; ++count) {
    EXPECT_THAT(reason(folder.write("a.png", png.substr(0, count))), HasSubstr("a.png: truncated")) << count;
  }
  for (std::size_t count = 4; count < jpeg.size() - 2; ++count) {
    EXPECT_THAT(reason(folder.write("a.jpg", jpeg.substr(0, count))), HasSubstr("a.jpg: ")) << count;
  }
  for (const bool lossless : {false, true}) {
    const std::string webp = webp_bytes(lossless, false, size, samples);
    for (std::size_t count = 1; count < webp.size(); ++count)
      EXPECT_THAT(reason(folder.write("a.webp", webp.substr(0, count))), HasSubstr("a.webp: truncated")) << count;
  }
  EXPECT_THAT(reason(folder.write("a.jpg", jpeg.substr(0, jpeg.size() - 40))), HasSubstr("a.jpg: truncated"));
  EXPECT_THAT(reason(folder.write("a.jpg", jpeg.substr(0, 30))), HasSubstr("a.jpg: truncated"));
}

TEST(Image, impossible_sizes_are_refused_before_memory_is_taken_for_them) {
  const TempFolder folder;
  std::string png = png_bytes({}, size, samples_of(3, [](int) { return std::uint8_t{1}; }));
  png.replace(16, 4, std::string("\0\0\x40\x01", 4));
  EXPECT_THAT(reason(folder.write("a.png", png)), HasSubstr("too large: 16385 x 5 pixels; the most is 16384 a side"));
  EXPECT_THAT(image_size(folder.write("a.png", png)).error().message, HasSubstr("too large"));
  png.replace(16, 4, std::string(4, '\0'));
  EXPECT_THAT(reason(folder.write("a.png", png)), HasSubstr("no pixels"));
  std::string jpeg = jpeg_bytes(JpegForm::gray, size, samples_of(1, [](int) { return std::uint8_t{1}; }));
  const auto frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, jpeg.npos);
  jpeg.replace(frame + 5, 4, "\xff\xff\xff\xff");
  EXPECT_THAT(reason(folder.write("a.jpg", jpeg)), HasSubstr("too large: 65535 x 65535"));
}

TEST(Image, more_pixels_than_the_limit_are_refused_though_each_side_is_small_enough) {
  const TempFolder folder;
  const auto file = folder.write("a.png", png_promising(0, false, {16384, 10923}, "x"));
  const std::string wanted = file.string() + ": too large: 16384 x 10923 pixels; the most is 178956970 in all";
  EXPECT_EQ(reason(file), wanted);
  EXPECT_EQ(image_size(file).error().message, wanted);
}

std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

TEST(Image, a_small_file_that_promises_a_huge_picture_fails_without_memory_for_it) {
  const TempFolder folder;
  // A stored block of deflate (RFC 1951, 3.2.4) that promises 65535 bytes and has 7.
  const std::string_view data("\x78\x01\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00", 14);
  [[maybe_unused]] const std::int64_t before = peak_bytes();
  for (const int colour_type : {0, 2, 4, 6}) {
    for (const bool interlaced : {false, true}) {
      const auto file = folder.write("a.png", png_promising(colour_type, interlaced, {16384, 10900}, data));
      EXPECT_LT(std::filesystem::file_size(file), 80u);
      EXPECT_TRUE(image_size(file).ok());
      EXPECT_THAT(reason(file), StartsWith(file.string() + ": "));
      EXPECT_NE(reason(file), "accepted");
    }
  }
  std::string jpeg = jpeg_bytes(JpegForm::colour, size, samples_of(3, [](int) { return std::uint8_t{1}; }));
  jpeg.replace(jpeg.find("\xff\xc0") + 5, 4, "\x2a\x94\x40\x01", 4);  // 10900 rows of 16385 columns; the limit is 16384
  EXPECT_THAT(reason(folder.write("a.jpg", jpeg)), HasSubstr("a.jpg: too large"));
  jpeg.replace(jpeg.find("\xff\xc0") + 7, 2, "\x40\x00", 2);
  EXPECT_THAT(reason(folder.write("a.jpg", jpeg)), HasSubstr("a.jpg: truncated"));
  for (const bool alpha : {false, true}) {
    const auto samples = samples_of(alpha ? 4 : 3, [](int at) { return static_cast<std::uint8_t>(at * 29); });
    std::string webp = webp_bytes(false, alpha, size, samples);
    webp.replace(webp.find("\x9d\x01\x2a") + 3, 4, "\xff\x3f\x98\x2a", 4);  // 16383 x 10904
    if (alpha) webp.replace(webp.find("VP8X") + 12, 6, "\xfe\x3f\x00\x97\x2a\x00", 6);
    const auto file = folder.write("a.webp", webp);
    EXPECT_EQ(*image_size(file), (ImageSize{16383, 10904}));
    EXPECT_THAT(reason(file), HasSubstr("a.webp: "));
  }
  // The image would take 510 MB; only a row and the first 16 MB are allocated, or its pages are not touched.
#ifndef __SANITIZE_ADDRESS__  // it has shadow memory for such pages
  EXPECT_LT(peak_bytes() - before, std::int64_t{100} << 20);
#endif
}

TEST(Image, a_row_after_another_and_interlaced_hold_the_same_picture) {
  const TempFolder folder;
  for (std::int64_t height = 1; height <= 17; ++height) {
    for (std::int64_t width = 1; width <= 17; ++width) {
      std::vector<std::uint8_t> samples(static_cast<std::size_t>(width * height) * 4);
      for (std::size_t at = 0; at < samples.size(); ++at) samples[at] = static_cast<std::uint8_t>(at * 151 % 253);
      const auto rows = decode_image(folder.write("a.png", png_bytes({6, 8, false, {}, {}}, {width, height}, samples)));
      const auto passes =
          decode_image(folder.write("b.png", png_bytes({6, 8, true, {}, {}}, {width, height}, samples)));
      ASSERT_TRUE(rows.ok() && passes.ok()) << width << " x " << height;
      ASSERT_EQ(passes->pixels, rows->pixels) << width << " x " << height;
    }
  }
}

TEST(Image, a_picture_beyond_the_first_room_reads_whole) {
  const TempFolder folder;
  constexpr ImageSize large{4000, 3000};  // 36 MB
  std::vector<std::uint8_t> samples(static_cast<std::size_t>(large.width * large.height));
  for (std::size_t at = 0; at < samples.size(); ++at) samples[at] = static_cast<std::uint8_t>(at / 4000 + at % 7);
  for (const bool interlaced : {false, true}) {
    const auto image = decode_image(folder.write("a.png", png_bytes({0, 8, interlaced, {}, {}}, large, samples)));
    ASSERT_TRUE(image.ok());
    ASSERT_EQ(image->pixels.size(), samples.size() * 3);
    EXPECT_LE(image->pixels.capacity(), samples.size() * 3) << "a kept image holds no more than its pixels";
    std::size_t different = 0;
    for (std::size_t at = 0; at < samples.size(); ++at) different += image->pixels[at * 3 + at % 3] != samples[at];
    EXPECT_EQ(different, 0u);
  }
}

TEST(Image, a_jpeg_a_webp_and_a_png_are_turned_as_their_orientation_says) {
  const TempFolder folder;
  // Four single-coloured fields, a b over c d, of 16 rows each; then their order after each orientation.
  constexpr int a = 40, b = 90, c = 150, d = 220;
  std::vector<std::uint8_t> samples;
  for (int row = 0; row < 32; ++row) {
    for (int column = 0; column < 48; ++column) {
      samples.push_back(static_cast<std::uint8_t>(row < 16 ? (column < 16 ? a : b) : (column < 16 ? c : d)));
    }
  }
  constexpr ImageSize whole{48, 32};
  const std::string stored = jpeg_bytes(JpegForm::gray, whole, samples);
  std::vector<std::uint8_t> colours;
  for (const std::uint8_t sample : samples) colours.insert(colours.end(), 3, sample);
  const std::string webp = webp_bytes(true, false, whole, colours);
  struct Shown {
    int orientation;
    std::array<int, 4> corners;  // top left, top right, bottom left, bottom right
  };
  const Shown shown[] = {{1, {a, b, c, d}}, {2, {b, a, d, c}}, {3, {d, c, b, a}}, {4, {c, d, a, b}}, {5, {a, c, b, d}},
                         {6, {c, a, d, b}}, {7, {d, b, c, a}}, {8, {b, d, a, c}}, {0, {a, b, c, d}}, {9, {a, b, c, d}}};
  const std::string png = *encode_png({whole.width, whole.height, colours});
  const std::function<std::string(int)> forms[] = {
      [&](int orientation) { return with_orientation(stored, orientation, false); },
      [&](int orientation) { return with_orientation(stored, orientation, true); },
      [&](int orientation) { return webp_extended(webp, whole, 8, orientation); },
      [&](int orientation) { return png_with_orientation(png, orientation, false, false); },
      [&](int orientation) { return png_with_orientation(png, orientation, true, true); }};
  for (const auto& form : forms) {
    for (const Shown& each : shown) {
      SCOPED_TRACE("orientation " + std::to_string(each.orientation));
      const auto file = folder.write("a", form(each.orientation));
      const auto image = decode_image(file);
      ASSERT_TRUE(image.ok()) << image.error().message;
      const bool turned = each.orientation >= 5 && each.orientation <= 8;
      EXPECT_EQ(image->size(), (turned ? ImageSize{32, 48} : ImageSize{48, 32}));
      EXPECT_EQ(*image_size(file), image->size());
      const auto at = [&](std::int64_t row, std::int64_t column) {
        return int{image->pixels[static_cast<std::size_t>((row * image->width + column) * 3)]};
      };
      const std::array<int, 4> corners{at(0, 0), at(0, image->width - 1), at(image->height - 1, 0),
                                       at(image->height - 1, image->width - 1)};
      for (std::size_t corner = 0; corner < 4; ++corner)
        EXPECT_NEAR(corners[corner], each.corners[corner], 2) << corner;
    }
  }
}

TEST(Image, a_png_is_turned_as_pillow_turns_it) {
  // Red values from ImageOps.exif_transpose in Pillow 13.
  const std::vector<std::vector<int>> recorded = {{0, 3, 6, 9, 12, 15}, {6, 3, 0, 15, 12, 9}, {15, 12, 9, 6, 3, 0},
                                                  {9, 12, 15, 0, 3, 6}, {0, 9, 3, 12, 6, 15}, {9, 0, 12, 3, 15, 6},
                                                  {15, 6, 12, 3, 9, 0}, {6, 15, 3, 12, 0, 9}};
  Image stored{3, 2, std::vector<std::uint8_t>(18)};
  for (std::size_t at = 0; at < 18; ++at) stored.pixels[at] = static_cast<std::uint8_t>(at);
  const std::string png = *encode_png(stored);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool after : {false, true}) {
      const auto image = decode_image(png_with_orientation(png, orientation, after, false), "a.png");
      ASSERT_TRUE(image.ok()) << image.error().message;
      EXPECT_EQ(image->width, orientation < 5 ? 3 : 2);
      std::vector<int> reds;
      for (std::size_t at = 0; at < 18; at += 3) {
        reds.push_back(image->pixels[at]);
        EXPECT_EQ(image->pixels[at + 2], image->pixels[at] + 2) << "colours stay together";
      }
      EXPECT_EQ(reds, recorded[static_cast<std::size_t>(orientation - 1)]) << orientation;
    }
  }
}

TEST(Image, a_damaged_orientation_turns_nothing) {
  const TempFolder folder;
  const std::string plain =
      jpeg_bytes(JpegForm::gray, size, samples_of(1, [](int at) { return static_cast<std::uint8_t>(at * 7); }));
  const std::string turned = with_orientation(plain, 6, true);
  const auto upright = decode_image(folder.write("a.jpg", plain));
  const std::size_t block = turned.find("II*"), entries = block + 8;
  for (const auto& [place, byte] :
       {std::pair{block, 'X'}, {block + 2, '\0'}, {block + 7, '\x7f'}, {entries, '\0'}, {entries + 2 + 12 + 2, '\7'}}) {
    std::string damaged = turned;
    damaged[place] = byte;
    const auto image = decode_image(folder.write("a.jpg", damaged));
    ASSERT_TRUE(image.ok()) << image.error().message;
    EXPECT_EQ(image->pixels, upright->pixels) << place - block;
  }
}

TEST(Image, damaged_checksums_and_markers_are_errors) {
  const TempFolder folder;
  const auto samples = samples_of(3, [](int at) { return static_cast<std::uint8_t>(at * 91 % 251); });
  std::string png = png_bytes({}, size, samples);
  png[png.find("IDAT") + 10] ^= 0x55;
  EXPECT_THAT(reason(folder.write("a.png", png)), AllOf(HasSubstr("a.png: broken: "), HasSubstr("(libpng)")));
  EXPECT_THAT(reason(folder.write("a.jpg", "\xff\xd8\xff\xd9")), HasSubstr("broken: no size"));
}

TEST(Image, no_mutation_of_a_file_does_more_than_fail) {
  const TempFolder folder;
  const auto samples = samples_of(3, [](int at) { return static_cast<std::uint8_t>(at * 91 % 251); });
  constexpr std::uint64_t seed = 11;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int failed = 0;
  for (const std::string& whole :
       {png_bytes({6, 8, true, {}, {}}, {5, 5}, std::vector<std::uint8_t>(100, 9)),
        jpeg_bytes(JpegForm::colour, size, samples), webp_extended(webp_bytes(false, false, size, samples), size, 8, 6),
        webp_bytes(true, false, size, samples)}) {
    for (int round = 0; round < 600; ++round) {
      std::string bytes = whole;
      for (std::uint64_t edits = random() % 4 + 1; edits > 0; --edits) {
        bytes[random() % bytes.size()] = static_cast<char>(random() & 0xff);
      }
      const auto file = folder.write("a", bytes);
      const auto image = decode_image(file);
      const auto header = image_size(file);
      if (!image.ok()) {
        ++failed;
        EXPECT_THAT(image.error().message, StartsWith(file.string() + ": "));
        continue;
      }
      ASSERT_TRUE(header.ok()) << "decoded without a header";
      EXPECT_EQ(image->size(), *header);
      EXPECT_EQ(image->pixels.size(), static_cast<std::size_t>(header->width * header->height * 3));
    }
  }
  EXPECT_GT(failed, 300) << "the mutations were harmless, so this test tested little";
}

}  // namespace
}  // namespace maestro
