// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/patches.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "runtime/data/image/image_resize.hpp"
#include "tests/images/image_bytes.hpp"

namespace maestro {
namespace {

Image noise_image(ImageSize size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Image image{size.width, size.height,
              std::vector<std::uint8_t>(static_cast<std::size_t>(size.width * size.height * 3))};
  for (auto& pixel : image.pixels) pixel = static_cast<std::uint8_t>(random());
  return image;
}

TEST(Resize, the_same_size_gives_the_same_pixels) {
  const Image image = noise_image({9, 6}, 1);
  EXPECT_EQ(resize(image, 9, 6).pixels, image.pixels);
}

TEST(Resize, one_colour_stays_that_colour_at_every_size) {
  const Image image = plain_image({13, 7}, 3, 200, 255);
  for (const ImageSize to : {ImageSize{1, 1}, ImageSize{5, 3}, ImageSize{13, 8}, ImageSize{40, 29}}) {
    EXPECT_EQ(resize(image, to.width, to.height).pixels, plain_image(to, 3, 200, 255).pixels)
        << to.width << " x " << to.height;
  }
}

TEST(Resize, growing_interpolates_and_shrinking_weighs_every_pixel) {
  // Values by Pillow's definition of BILINEAR: a triangle with half width max(1, scale) around each target's centre.
  const Image two{2, 1, {0, 0, 0, 100, 100, 100}};
  const Image four = resize(two, 4, 1);
  EXPECT_EQ(four.pixels, (std::vector<std::uint8_t>{0, 0, 0, 25, 25, 25, 75, 75, 75, 100, 100, 100}));
  Image spot{8, 1, std::vector<std::uint8_t>(24, 0)};
  for (std::size_t at = 0; at < 8; ++at) {
    spot.pixels.assign(24, 0);
    spot.pixels[at * 3] = 240;
    const Image small = resize(spot, 2, 1);
    EXPECT_GT(small.pixels[0] + small.pixels[3], 0) << "pixel " << at << " was lost";
  }
}

TEST(Resize, shrinking_a_fine_checkerboard_gives_gray) {
  Image board{32, 32, {}};
  for (int at = 0; at < 32 * 32; ++at) {
    const auto value = static_cast<std::uint8_t>((at + at / 32) % 2 == 0 ? 0 : 255);
    board.pixels.insert(board.pixels.end(), {value, value, value});
  }
  for (const std::uint8_t pixel : resize(board, 8, 8).pixels) EXPECT_NEAR(pixel, 127.5, 5.0);
}

TEST(PatchGrid, every_size_gives_whole_patches_within_the_limits) {
  constexpr std::uint64_t seed = 5;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20000; ++round) {
    const std::int64_t patch = 1 + static_cast<std::int64_t>(random() % 32);
    const PatchSettings settings{patch, static_cast<std::int64_t>(random() % 12) * patch,
                                 patch + static_cast<std::int64_t>(random() % 1000)};
    const ImageSize size{1 + static_cast<std::int64_t>(random() % 2000),
                         1 + static_cast<std::int64_t>(random() % 2000)};
    SCOPED_TRACE(std::to_string(size.width) + " x " + std::to_string(size.height) + ", patch " + std::to_string(patch) +
                 ", image_size " + std::to_string(settings.image_size) + ", max " +
                 std::to_string(settings.max_image_size));
    const PatchGrid grid = patch_grid(size, settings);
    ASSERT_GE(grid.rows, 1);
    ASSERT_GE(grid.columns, 1);
    const std::int64_t longer = std::max(grid.rows, grid.columns) * patch;
    if (settings.image_size > 0) {
      ASSERT_EQ(longer, settings.image_size);
    } else {
      ASSERT_LE(longer, settings.max_image_size);
    }
    // The aspect is off by at most half a patch on each side, unless a side was raised to a single patch or reduced to
    // the limit.
    const double wanted = settings.image_size > 0 ? static_cast<double>(settings.image_size)
                                                  : std::min(static_cast<double>(std::max(size.width, size.height)),
                                                             static_cast<double>(settings.max_image_size));
    const double scale = wanted / static_cast<double>(std::max(size.width, size.height));
    const double off = std::abs(static_cast<double>(grid.rows * patch) - static_cast<double>(size.height) * scale);
    ASSERT_LE(off, static_cast<double>(patch));
    ASSERT_EQ(patch_grid({size.height, size.width}, settings), (PatchGrid{grid.columns, grid.rows})) << "turned";
  }
}

TEST(PictureGrids, hold_the_most_of_every_grid_and_whether_all_have_one_width) {
  PictureGrids grids;
  EXPECT_TRUE(grids.one_width);
  grids.add({2, 6});
  grids.add({3, 3});
  EXPECT_EQ(grids.largest, (PatchGrid{2, 6}));
  EXPECT_EQ(grids.rows, 3);
  EXPECT_EQ(grids.columns, 6);
  EXPECT_FALSE(grids.one_width);
  grids.add({1, 6});
  EXPECT_FALSE(grids.one_width) << "an earlier image has another width";
}

TEST(PatchGrid, known_sizes) {
  EXPECT_EQ(patch_grid({72, 72}, {8, 64, 1024}), (PatchGrid{8, 8}));
  EXPECT_EQ(patch_grid({640, 480}, {14, 336, 1024}), (PatchGrid{18, 24}));
  EXPECT_EQ(patch_grid({1000, 3}, {8, 64, 1024}), (PatchGrid{1, 8}));
  EXPECT_EQ(patch_grid({72, 52}, {8, 0, 1024}), (PatchGrid{7, 9}));
  EXPECT_EQ(patch_grid({3, 3}, {8, 0, 1024}), (PatchGrid{1, 1}));
  EXPECT_EQ(patch_grid({4096, 2048}, {8, 0, 100}), (PatchGrid{6, 12}));
}

TEST(Patchify, lays_out_channel_row_column_and_places) {
  const Image image = noise_image({6, 4}, 3);
  std::vector<float> pixels(6 * 12);
  std::vector<std::int32_t> places(6 * 3);
  patchify(image, 2, 5, pixels, places);
  for (int patch = 0; patch < 6; ++patch) {
    const int row = patch / 3;
    const int column = patch % 3;
    const std::int32_t* place = places.data() + patch * 3;
    EXPECT_EQ((std::array{place[0], place[1], place[2]}), (std::array{5, row, column}));
    for (int channel = 0; channel < 3; ++channel) {
      for (int y = 0; y < 2; ++y) {
        for (int x = 0; x < 2; ++x) {
          const int source = ((row * 2 + y) * 6 + column * 2 + x) * 3 + channel;
          const float expected = static_cast<float>(image.pixels[static_cast<std::size_t>(source)]) / 127.5f - 1.0f;
          EXPECT_EQ(pixels[static_cast<std::size_t>(patch * 12 + channel * 4 + y * 2 + x)], expected);
        }
      }
    }
  }
}

TEST(Patchify, black_is_minus_one_and_white_is_one) {
  std::vector<float> pixels(12);
  std::vector<std::int32_t> places(3);
  patchify(plain_image({2, 2}, 0, 255, 0), 2, 0, pixels, places);
  EXPECT_EQ(pixels[0], -1.0f);
  EXPECT_EQ(pixels[4], 1.0f);
}

TEST(Patchify, refuses_a_picture_that_the_patches_do_not_fill) {
  std::vector<float> pixels(12);
  std::vector<std::int32_t> places(3);
  EXPECT_THROW(patchify(plain_image({3, 2}, 0, 0, 0), 2, 0, pixels, places), std::invalid_argument);
  EXPECT_THROW(patchify(plain_image({4, 2}, 0, 0, 0), 2, 0, pixels, places), std::invalid_argument);
}

}  // namespace
}  // namespace maestro
