// SPDX-License-Identifier: Apache-2.0
// Small pieces of HTML and SVG. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace maestro {

/// Returns `text` for HTML or SVG, inside an element or a quoted attribute.
[[nodiscard]] std::string escaped(std::string_view text);
/// Encodes by RFC 4648, with padding.
[[nodiscard]] std::string base64(std::string_view bytes);
/// Returns `digits` digits after the point, without a locale.
[[nodiscard]] std::string fixed(double value, int digits);
/// Returns a share as "12.3%".
[[nodiscard]] std::string percent(double share, int digits = 1);
/// Returns at most four significant digits: 0.001234, 12.5, 2000.
[[nodiscard]] std::string shortened(double value);

}  // namespace maestro
