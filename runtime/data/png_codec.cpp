// PNG by libpng. The library reports an error by a call that must not return; it jumps back into the member function of
// PngReader that called the library. Those functions hold nothing that has a destructor, so no jump leaks. (libpng's
// simplified interface needs no jumps, but reads interlaced pictures of sixteen bits wrongly in 1.6.39.)
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "runtime/data/image_codecs.hpp"

namespace maestro {

namespace {

class PngReader {
 public:
  explicit PngReader(std::string_view bytes) : left_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, leave, [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  /// Reads the header and chooses rows of three channels, or four where there is transparency, of eight bits each.
  [[nodiscard]] bool start() {
    if (info_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_user_limits(png_, largest_image_side, largest_image_side);
    png_set_read_fn(png_, this, next);
    png_read_info(png_, info_);
    png_set_expand(png_);  // palettes and few bits to eight, a transparent colour to alpha
    png_set_scale_16(png_);
    png_set_gray_to_rgb(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  /// `pixels` has height x stride bytes.
  [[nodiscard]] bool read(std::uint8_t* pixels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    for (int pass = 0; pass < passes_; ++pass) {
      for (std::int64_t row = 0; row < size().height; ++row) {
        png_read_row(png_, pixels + static_cast<std::size_t>(row) * stride(), nullptr);
      }
    }
    return true;
  }
  [[nodiscard]] ImageSize size() const { return {png_get_image_width(png_, info_), png_get_image_height(png_, info_)}; }
  [[nodiscard]] std::size_t stride() const { return png_get_rowbytes(png_, info_); }
  [[nodiscard]] bool alpha() const { return png_get_channels(png_, info_) == 4; }
  [[nodiscard]] Error error() const {
    if (info_ == nullptr) return {ErrorCode::unavailable, "libpng cannot start: out of memory"};
    return {ErrorCode::corrupt, std::string(truncated_ ? "truncated: " : "broken: ") + words_ + " (libpng)"};
  }

 private:
  [[noreturn]] static void leave(png_structp png, png_const_charp words) {
    auto& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(reader.words_, words, sizeof reader.words_ - 1);
    png_longjmp(png, 1);
  }
  static void next(png_structp png, png_bytep to, std::size_t count) {
    auto& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > reader.left_.size()) {
      reader.truncated_ = true;
      png_error(png, "the file ends inside the picture");
    }
    std::memcpy(to, reader.left_.data(), count);
    reader.left_.remove_prefix(count);
  }

  std::string_view left_;  // of the file
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  bool truncated_ = false;
  char words_[128]{};
};

std::uint8_t on_white(unsigned colour, unsigned alpha) {
  return static_cast<std::uint8_t>((colour * alpha + 255 * (255 - alpha) + 127) / 255);
}

std::vector<std::uint8_t> without_alpha(const std::vector<std::uint8_t>& pixels) {
  std::vector<std::uint8_t> out(pixels.size() / 4 * 3);
  for (std::size_t from = 0, to = 0; from < pixels.size(); from += 4, to += 3) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      out[to + channel] = on_white(pixels[from + channel], pixels[from + 3]);
    }
  }
  return out;
}

/// libpng's simplified interface for writing; what it holds lives as long as this.
class PngWriter {
 public:
  explicit PngWriter(const Image& image) {
    image_.version = PNG_IMAGE_VERSION;
    image_.width = static_cast<png_uint_32>(image.width);
    image_.height = static_cast<png_uint_32>(image.height);
    image_.format = PNG_FORMAT_RGB;
  }
  ~PngWriter() { png_image_free(&image_); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;
  [[nodiscard]] png_image& image() { return image_; }

 private:
  png_image image_{};
};

}  // namespace

Result<Image> decode_png(std::string_view bytes) {
  PngReader png(bytes);
  if (!png.start()) return png.error();
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(png.size().height) * png.stride());
  if (!png.read(pixels.data())) return png.error();
  if (png.alpha()) pixels = without_alpha(pixels);
  return Image{png.size().width, png.size().height, std::move(pixels)};
}

Result<std::string> encode_png(const Image& picture) {
  PngWriter png(picture);
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(png.image());
  std::string out(bytes, '\0');
  if (png_image_write_to_memory(&png.image(), out.data(), &bytes, 0, picture.pixels.data(), 0, nullptr) == 0) {
    return Error{ErrorCode::internal, std::string("cannot encode a PNG: ") + png.image().message + " (libpng)"};
  }
  out.resize(bytes);
  return out;
}

}  // namespace maestro
