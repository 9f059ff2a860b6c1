// SPDX-License-Identifier: Apache-2.0
// JPEG by libjpeg-turbo. The library reports an error by calling `leave`, which must not return; it jumps back into the
// member function of JpegReader that called the library. These functions hold no object with a destructor, so the jumps
// leak nothing.
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <span>

#include <jpeglib.h>  // wants <cstdio> first

#include <jerror.h>

#include "runtime/images/image_codecs.hpp"

namespace maestro {

namespace {

class JpegReader {
 public:
  JpegReader() {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = leave;
    errors_.emit_message = note;
    info_.client_data = this;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  /// Reads the header and selects rows of three RGB channels, or of four CMYK channels.
  [[nodiscard]] bool start(std::string_view bytes) {
    if (setjmp(back_) != 0) return false;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&info_, TRUE);
    const bool inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&info_);
    return true;
  }
  /// Reads the next row; `to` has width x 3 bytes, or width x 4 for inks.
  [[nodiscard]] bool row(std::uint8_t* to) {
    if (setjmp(back_) != 0) return false;
    JSAMPROW row = to;
    jpeg_read_scanlines(&info_, &row, 1);
    return true;
  }
  [[nodiscard]] bool finish() {
    if (setjmp(back_) != 0) return false;
    jpeg_finish_decompress(&info_);
    return true;
  }
  [[nodiscard]] ImageSize size() const { return {info_.output_width, info_.output_height}; }
  [[nodiscard]] bool inks() const { return info_.out_color_space == JCS_CMYK; }
  /// Returns whether inks are stored inverted, as Adobe's programs do; they mark their files.
  [[nodiscard]] bool inverted() const { return info_.saw_Adobe_marker != 0; }
  [[nodiscard]] bool truncated() const { return truncated_; }
  [[nodiscard]] const char* words() const { return words_; }

 private:
  static JpegReader& reader_of(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }
  [[noreturn]] static void leave(j_common_ptr info) {
    info->err->format_message(info, reader_of(info).words_);
    std::longjmp(reader_of(info).back_, 1);
  }
  /// Turns a warning (level -1) into an error, as the library would continue with made-up pixels. Harmless warnings,
  /// such as stray bytes, are ignored.
  static void note(j_common_ptr info, int level) {
    if (level >= 0) return;
    const int code = info->err->msg_code;
    if (code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR) return;
    reader_of(info).truncated_ = code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER;
    leave(info);
  }

  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  std::jmp_buf back_{};
  char words_[JMSG_LENGTH_MAX]{};
  bool truncated_ = false;
};

Error error_of(const JpegReader& jpeg) {
  return {ErrorCode::corrupt, std::string(jpeg.truncated() ? "truncated: " : "broken: ") + jpeg.words() + " (libjpeg)"};
}

/// Converts a row of inks to RGB.
void from_inks(std::span<const std::uint8_t> inks, bool inverted, std::uint8_t* to) {
  const auto light = [&](std::uint8_t ink) { return inverted ? unsigned{ink} : 255u - ink; };
  for (std::size_t from = 0; from < inks.size(); from += 4) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      *to++ = static_cast<std::uint8_t>((light(inks[from + channel]) * light(inks[from + 3]) + 127) / 255);
    }
  }
}

}  // namespace

Result<Image> decode_jpeg(std::string_view bytes) {
  JpegReader jpeg;
  if (!jpeg.start(bytes)) return error_of(jpeg);
  const ImageSize size = jpeg.size();
  const auto stride = static_cast<std::size_t>(size.width) * 3;
  std::vector<std::uint8_t> pixels, inks(jpeg.inks() ? static_cast<std::size_t>(size.width) * 4 : 0);
  for (std::int64_t row = 0; row < size.height; ++row) {
    make_room(pixels, stride, stride * static_cast<std::size_t>(size.height));
    pixels.resize(pixels.size() + stride);
    std::uint8_t* to = pixels.data() + pixels.size() - stride;
    if (!jpeg.row(jpeg.inks() ? inks.data() : to)) return error_of(jpeg);
    if (jpeg.inks()) from_inks(inks, jpeg.inverted(), to);
  }
  if (!jpeg.finish()) return error_of(jpeg);
  return Image{size.width, size.height, std::move(pixels)};
}

}  // namespace maestro
