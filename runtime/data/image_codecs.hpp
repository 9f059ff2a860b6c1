// Decoders of single formats, from memory. Their errors give a reason only; decode_image adds the file.
#pragma once

#include <string_view>

#include "runtime/core/result.hpp"
#include "runtime/data/image.hpp"

namespace maestro {

/// `bytes` starts with a PNG header whose size has been checked.
[[nodiscard]] Result<Image> decode_png(std::string_view bytes);
/// `bytes` starts with a JPEG header whose size has been checked.
[[nodiscard]] Result<Image> decode_jpeg(std::string_view bytes);

}  // namespace maestro
