// SPDX-License-Identifier: Apache-2.0
// Fuzz target for images: PNG, JPEG and WebP files and EXIF blocks. Each PNG is also read with its checksums corrected,
// which reaches parts of the decoder that a damaged file does not. A small image is written and read back.
#include <zlib.h>

#include "fuzz_target.hpp"
#include "runtime/images/image.hpp"
#include "runtime/images/orientation.hpp"

namespace maestro::fuzz {
namespace {

void check_written(const Image& image) {
  const Result<std::string> written = encode_png(image);
  require(written.ok(), "an image can be written");
  const Result<Image> again = decode_image(scratch().write("written.png", *written));
  require(again.ok() && again->size() == image.size() && again->pixels == image.pixels,
          "a written image reads back equal");
}

void read(std::string_view bytes) {
  constexpr std::size_t small = 1 << 16;
  const auto file = scratch().write("image", bytes);
  const Result<ImageSize> announced = image_size(file);
  accepted(announced);
  const Result<Image> image = decode_image(file);
  if (!accepted(image)) return;
  require(announced.ok() && *announced == image->size(), "an image has the size of its header");
  require(static_cast<std::int64_t>(image->pixels.size()) == image->width * image->height * 3,
          "an image has all its pixels");
  if (image->pixels.size() <= small) check_written(*image);
}

/// Returns a PNG with a correct checksum after each complete chunk: length, kind, body, checksum (PNG specification,
/// 5.3).
std::string with_checksums(std::string png) {
  constexpr std::size_t signature = 8, around = 12;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(png[at]); };
  for (std::size_t at = signature; at + around <= png.size();) {
    const std::size_t body = std::size_t{byte(at)} << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    if (body > png.size() - at - around) break;
    const auto* kind = reinterpret_cast<const Bytef*>(png.data() + at + 4);
    const auto sum = static_cast<std::uint32_t>(crc32(0, kind, static_cast<uInt>(body + 4)));
    at += around + body;
    for (std::size_t part = 1; part <= 4; ++part) png[at - part] = static_cast<char>(sum >> (8 * (part - 1)));
  }
  return png;
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string_view bytes = fuzz::text_of(data, size);
  const int orientation = exif_orientation(bytes);
  fuzz::require(orientation >= as_stored && orientation <= 8, "an orientation is 1 to 8");
  fuzz::read(bytes);
  if (bytes.starts_with("\x89PNG")) fuzz::read(fuzz::with_checksums(std::string(bytes)));
  return 0;
}
