// SPDX-License-Identifier: Apache-2.0
// PNG by libpng. The library reports an error by calling `leave`, which must not return; it jumps back into the member
// function of PngReader that called the library. These functions hold no object with a destructor, so the jumps leak
// nothing. (libpng's simplified interface needs no jumps, but 1.6.39 reads interlaced images of sixteen bits wrongly.)
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <span>

#include "runtime/images/image_codecs.hpp"

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

  /// Reads the header and selects rows of three channels, or four with transparency, of eight bits each.
  [[nodiscard]] bool start() {
    if (info_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_user_limits(png_, largest_image_side, largest_image_side);
    // Texts, profiles and times are not used, and compressed chunks would take memory.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_read_fn(png_, this, next);
    png_read_info(png_, info_);
    png_set_expand(png_);  // palettes and fewer bits to eight bits, a transparent colour to alpha
    png_set_scale_16(png_);
    png_set_gray_to_rgb(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  /// Reads the next row of the file; an interlaced file has the rows of each pass in order. `to` has stride() bytes.
  [[nodiscard]] bool row(std::uint8_t* to) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_row(png_, to, nullptr);
    return true;
  }
  [[nodiscard]] bool interlaced() const { return png_get_interlace_type(png_, info_) == PNG_INTERLACE_ADAM7; }
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
      png_error(png, "the file ends inside the image");
    }
    std::memcpy(to, reader.left_.data(), count);
    reader.left_.remove_prefix(count);
  }

  std::string_view left_;  // bytes of the file that are not read yet
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  bool truncated_ = false;
  char words_[128]{};
};

/// Reads the rows of a file in order and converts them to RGB.
class PngRows {
 public:
  explicit PngRows(PngReader& png) : png_(png), raw_(png.stride()) {}
  /// Appends the next row, `width` pixels; false: the file is broken.
  [[nodiscard]] bool append(std::vector<std::uint8_t>& pixels, std::int64_t width) {
    if (!png_.row(raw_.data())) return false;
    const auto count = static_cast<std::size_t>(width);
    if (!png_.alpha()) {
      pixels.insert(pixels.end(), raw_.begin(), raw_.begin() + static_cast<std::ptrdiff_t>(count * 3));
      return true;
    }
    const std::size_t before = pixels.size();
    pixels.resize(before + count * 3);
    std::uint8_t* to = pixels.data() + before;
    for (const std::uint8_t* from = raw_.data(); from != raw_.data() + count * 4; from += 4) {
      for (std::size_t channel = 0; channel < 3; ++channel) *to++ = on_white(from[channel], from[3]);
    }
    return true;
  }

 private:
  PngReader& png_;
  std::vector<std::uint8_t> raw_;
};

/// Appends the RGB pixels of `kept` and `added` in turns, starting with `kept`.
void append_in_turns(std::vector<std::uint8_t>& to, std::span<const std::uint8_t> kept,
                     std::span<const std::uint8_t> added) {
  while (!kept.empty()) {
    to.insert(to.end(), kept.begin(), kept.begin() + 3);
    kept = kept.subspan(3);
    if (added.empty()) continue;
    to.insert(to.end(), added.begin(), added.begin() + 3);
    added = added.subspan(3);
  }
}

/// Reads an interlaced file. PNG specification, 8.2 (Adam7): the first pass is the image at an eighth of its size, and
/// each later pass doubles the columns or the rows in turns. So memory grows with the passes in the file.
bool read_passes(PngReader& png, std::vector<std::uint8_t>& pixels) {
  PngRows rows(png);
  const auto width = static_cast<png_uint_32>(png.size().width), height = static_cast<png_uint_32>(png.size().height);
  std::int64_t columns = PNG_PASS_COLS(width, 0);  // columns in `pixels`
  for (std::uint32_t row = 0; row < PNG_PASS_ROWS(height, 0); ++row) {
    if (!rows.append(pixels, columns)) return false;
  }
  std::vector<std::uint8_t> finer, added;
  for (int pass = 1; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
    const std::int64_t new_columns = PNG_PASS_COLS(width, pass), new_rows = PNG_PASS_ROWS(height, pass);
    if (new_columns == 0 || new_rows == 0) continue;  // the file has nothing for this pass
    const bool doubles_columns = pass % 2 == 1;
    const auto stride = static_cast<std::size_t>(columns * 3);
    finer.clear();
    std::int64_t left = new_rows;
    for (std::size_t at = 0; at < pixels.size(); at += stride) {
      const std::span<const std::uint8_t> kept(pixels.data() + at, stride);
      added.clear();
      if (left-- > 0 && !rows.append(added, new_columns)) return false;
      make_room(finer, 2 * stride, 2 * pixels.size());
      if (doubles_columns) {
        append_in_turns(finer, kept, added);
      } else {
        finer.insert(finer.end(), kept.begin(), kept.end());
        finer.insert(finer.end(), added.begin(), added.end());
      }
    }
    if (doubles_columns) columns += new_columns;
    pixels.swap(finer);
  }
  return true;
}

bool read_rows(PngReader& png, std::vector<std::uint8_t>& pixels) {
  PngRows rows(png);
  const auto stride = static_cast<std::size_t>(png.size().width) * 3;
  const std::size_t whole = stride * static_cast<std::size_t>(png.size().height);
  for (std::int64_t row = 0; row < png.size().height; ++row) {
    make_room(pixels, stride, whole);
    if (!rows.append(pixels, png.size().width)) return false;
  }
  return true;
}

/// Owns the resources of libpng's simplified interface for writing.
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
  std::vector<std::uint8_t> pixels;
  const bool whole = png.interlaced() ? read_passes(png, pixels) : read_rows(png, pixels);
  if (!whole) return png.error();
  return Image{png.size().width, png.size().height, std::move(pixels)};
}

Result<std::string> encode_png(const Image& image) {
  PngWriter png(image);
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(png.image());
  std::string out(bytes, '\0');
  if (png_image_write_to_memory(&png.image(), out.data(), &bytes, 0, image.pixels.data(), 0, nullptr) == 0) {
    return Error{ErrorCode::internal, std::string("cannot encode a PNG: ") + png.image().message + " (libpng)"};
  }
  out.resize(bytes);
  return out;
}

}  // namespace maestro
