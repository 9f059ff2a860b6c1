#include "tests/data/image_bytes.hpp"

#include <png.h>

#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>  // wants <cstdio> first

namespace maestro {

namespace {

void append(png_structp png, png_bytep bytes, std::size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(bytes), count);
}

}  // namespace

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
