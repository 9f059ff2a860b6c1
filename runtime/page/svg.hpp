// SPDX-License-Identifier: Apache-2.0
// Elements of drawings in SVG. Colours come from the classes of the page's style sheet. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace maestro {

/// Returns the start tag of a drawing that screen readers call `label`; `attributes` begin with a space.
[[nodiscard]] std::string svg_opened(double width, double height, std::string_view label,
                                     std::string_view attributes = {});
/// Returns a text; `anchor`: start, middle or end.
[[nodiscard]] std::string svg_text(double x, double y, std::string_view anchor, std::string_view text);
[[nodiscard]] std::string svg_line(double x1, double y1, double x2, double y2, std::string_view kind);
/// Returns a round distance between ticks, about `wanted` of them up to `span`, which is positive.
[[nodiscard]] double tick_distance(double span, double wanted);

}  // namespace maestro
