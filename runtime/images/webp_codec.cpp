// SPDX-License-Identifier: Apache-2.0
// WebP by libwebp. The library needs memory for all pixels at once, but malloc's pages cost nothing until a row reaches
// them: a file that contains less than its header states takes little memory.
#include <webp/decode.h>

#include <cstdlib>
#include <memory>

#include "runtime/images/image_codecs.hpp"

namespace maestro {

namespace {

struct Free {
  void operator()(std::uint8_t* memory) const { std::free(memory); }  // NOLINT: of malloc
};

Error failed(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return {ErrorCode::unavailable, "cannot be decoded: out of memory"};
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return {ErrorCode::corrupt, "truncated: the file ends inside the image (libwebp)"};
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return {ErrorCode::corrupt, "broken: a feature that is not supported (libwebp)"};
    default:
      return {ErrorCode::corrupt, "broken: the image data are damaged (libwebp)"};
  }
}

}  // namespace

Result<Image> decode_webp(std::string_view bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0)
    return Error{ErrorCode::internal, "libwebp has another version than its headers"};
  if (const auto read = WebPGetFeatures(data, bytes.size(), &config.input); read != VP8_STATUS_OK) return failed(read);
  const bool alpha = config.input.has_alpha != 0;
  const auto pixels = static_cast<std::size_t>(config.input.width) * static_cast<std::size_t>(config.input.height);
  const std::size_t channels = alpha ? 4 : 3;
  const std::unique_ptr<std::uint8_t, Free> raw(static_cast<std::uint8_t*>(std::malloc(pixels * channels)));  // NOLINT
  if (!raw) return failed(VP8_STATUS_OUT_OF_MEMORY);
  config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {raw.get(), static_cast<int>(channels) * config.input.width, pixels * channels};
  if (const auto read = WebPDecode(data, bytes.size(), &config); read != VP8_STATUS_OK) return failed(read);
  Image image{config.input.width, config.input.height, {}};
  if (!alpha) {
    image.pixels.assign(raw.get(), raw.get() + pixels * channels);
    return image;
  }
  image.pixels.reserve(pixels * 3);
  for (const std::uint8_t* from = raw.get(); from != raw.get() + pixels * channels; from += channels) {
    for (std::size_t channel = 0; channel < 3; ++channel) image.pixels.push_back(on_white(from[channel], from[3]));
  }
  return image;
}

}  // namespace maestro
