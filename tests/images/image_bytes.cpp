// SPDX-License-Identifier: Apache-2.0
#include "tests/images/image_bytes.hpp"

#include <png.h>
#include <webp/encode.h>

#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>  // needs <cstdio> first

namespace maestro {

namespace {

void append(png_structp png, png_bytep bytes, std::size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(bytes), count);
}

std::string number(std::uint32_t value, int bytes, bool little = false) {
  std::string out;
  for (int at = 0; at < bytes; ++at) {
    out += static_cast<char>(value >> (8 * (little ? at : bytes - 1 - at)) & 0xff);
  }
  return out;
}

std::string chunk(const std::string& kind, const std::string& body) {
  std::uint32_t crc = 0xffffffff;  // PNG specification, annex D
  for (const char c : kind + body) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? 0xedb88320 ^ crc >> 1 : crc >> 1;
  }
  return number(static_cast<std::uint32_t>(body.size()), 4) + kind + body + number(~crc, 4);
}

/// Returns an EXIF block in TIFF format.
std::string orientation_block(int orientation, bool little) {
  const auto value = [&](std::uint32_t of, int bytes) { return number(of, bytes, little); };
  const auto entry = [&](std::uint32_t tag, std::uint32_t held) {  // an entry with a single short
    return value(tag, 2) + value(3, 2) + value(1, 4) + value(held, 2) + value(0, 2);
  };
  return (little ? "II" : "MM") + value(42, 2) + value(8, 4) + value(2, 2) + entry(0x0103, 6) +
         entry(0x0112, static_cast<std::uint32_t>(orientation)) + value(0, 4);
}

}  // namespace

std::string png_promising(int colour_type, bool interlaced, ImageSize size, std::string_view data) {
  std::string header =
      number(static_cast<std::uint32_t>(size.width), 4) + number(static_cast<std::uint32_t>(size.height), 4);
  for (const int byte : {8, colour_type, 0, 0, interlaced ? 1 : 0}) header += static_cast<char>(byte);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", std::string(data)) + chunk("IEND", "");
}

std::string with_orientation(const std::string& jpeg, int orientation, bool little) {
  const std::string body = std::string("Exif\0\0", 6) + orientation_block(orientation, little);
  return jpeg.substr(0, 2) + "\xff\xe1" + number(static_cast<std::uint32_t>(body.size() + 2), 2) + body +
         jpeg.substr(2);
}

std::string png_with_orientation(const std::string& png, int orientation, bool after, bool marked) {
  constexpr std::size_t header = 8 + 25, end = 12;  // signature and IHDR; IEND
  std::string out = png;
  return out.insert(after ? png.size() - end : header,
                    chunk("eXIf", (marked ? std::string("Exif\0\0", 6) : "") + orientation_block(orientation, marked)));
}

std::string webp_bytes(bool lossless, bool alpha, ImageSize size, const std::vector<std::uint8_t>& samples) {
  const int width = static_cast<int>(size.width), height = static_cast<int>(size.height);
  const int stride = width * (alpha ? 4 : 3);
  std::uint8_t* made = nullptr;
  std::size_t bytes = 0;
  if (lossless) {
    bytes = (alpha ? WebPEncodeLosslessRGBA : WebPEncodeLosslessRGB)(samples.data(), width, height, stride, &made);
  } else {
    bytes = (alpha ? WebPEncodeRGBA : WebPEncodeRGB)(samples.data(), width, height, stride, 100, &made);
  }
  std::string out(reinterpret_cast<const char*>(made), bytes);
  WebPFree(made);
  return out;
}

std::string webp_extended(const std::string& picture, ImageSize size, int flags, int orientation) {
  const auto chunk_of = [](const char* name, const std::string& body) {
    return name + number(static_cast<std::uint32_t>(body.size()), 4, true) + body + std::string(body.size() % 2, '\0');
  };
  const std::string header = number(static_cast<std::uint32_t>(flags), 4, true) +
                             number(static_cast<std::uint32_t>(size.width - 1), 3, true) +
                             number(static_cast<std::uint32_t>(size.height - 1), 3, true);
  const std::string body =
      "WEBP" + chunk_of("VP8X", header) + picture.substr(12) + chunk_of("EXIF", orientation_block(orientation, true));
  return "RIFF" + number(static_cast<std::uint32_t>(body.size()), 4, true) + body;
}

std::string png_bytes(const PngForm& form, ImageSize size, const std::vector<std::uint8_t>& samples) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &out, append, nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(size.width), static_cast<png_uint_32>(size.height), form.depth,
               form.colour_type, form.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (std::size_t at = 0; at + 2 < form.palette.size(); at += 3) {
    palette.push_back({form.palette[at], form.palette[at + 1], form.palette[at + 2]});
  }
  if (!palette.empty()) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  if (!form.palette_alpha.empty()) {
    png_set_tRNS(png, info, form.palette_alpha.data(), static_cast<int>(form.palette_alpha.size()), nullptr);
  }
  png_write_info(png, info);
  png_set_packing(png);
  std::vector<std::uint8_t> copy = samples;
  const std::size_t stride = copy.size() / static_cast<std::size_t>(size.height);
  std::vector<png_bytep> rows;
  for (std::size_t row = 0; row < static_cast<std::size_t>(size.height); ++row) {
    rows.push_back(copy.data() + row * stride);
  }
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

std::string jpeg_bytes(JpegForm form, ImageSize size, const std::vector<std::uint8_t>& samples) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* bytes = nullptr;
  unsigned long count = 0;
  jpeg_mem_dest(&jpeg, &bytes, &count);
  jpeg.image_width = static_cast<JDIMENSION>(size.width);
  jpeg.image_height = static_cast<JDIMENSION>(size.height);
  jpeg.input_components = form == JpegForm::gray ? 1 : form == JpegForm::colour ? 3 : 4;
  jpeg.in_color_space = form == JpegForm::gray ? JCS_GRAYSCALE : form == JpegForm::colour ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  if (form == JpegForm::inks) jpeg.write_Adobe_marker = FALSE;
  jpeg_start_compress(&jpeg, TRUE);
  std::vector<std::uint8_t> copy = samples;
  const auto stride = copy.size() / static_cast<std::size_t>(size.height);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = copy.data() + jpeg.next_scanline * stride;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string out(reinterpret_cast<const char*>(bytes), count);
  jpeg_destroy_compress(&jpeg);
  std::free(bytes);
  return out;
}

Image plain_image(ImageSize size, std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  Image image{size.width, size.height, {}};
  for (std::int64_t pixel = 0; pixel < size.width * size.height; ++pixel) {
    image.pixels.insert(image.pixels.end(), {red, green, blue});
  }
  return image;
}

}  // namespace maestro
