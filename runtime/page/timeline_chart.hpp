// SPDX-License-Identifier: Apache-2.0
// The lanes of a run over time as inline SVG. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/page/timeline.hpp"

namespace maestro {

/// Returns the passes on their lanes over time; empty without slices. Slices have class `p-forward`, `p-both`,
/// `p-backward` or `p-step`, and their section's colour.
[[nodiscard]] std::string timeline_chart(const Timeline& timeline);

/// Returns the sections in the order of their colours.
[[nodiscard]] std::vector<std::string> sections_of(const Timeline& timeline);

}  // namespace maestro
