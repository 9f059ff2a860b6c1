// SPDX-License-Identifier: Apache-2.0
// Drawings of a run as inline SVG. Colours come from the classes of the page's style sheet. Pure.
#pragma once

#include <string>
#include <vector>

#include "apps/vlm/timeline.hpp"

namespace maestro {

struct ChartPoint {
  double step = 0;
  double value = 0;
};

/// The loss over the steps on a logarithmic scale, as it was and as a moving mean, with the validation's points; empty
/// without a positive value.
[[nodiscard]] std::string loss_chart(const std::vector<ChartPoint>& training,
                                     const std::vector<ChartPoint>& validation);

/// Passes on their lanes over time; empty without slices. Slices have class `p-forward`, `p-both`, `p-backward` or
/// `p-step`, and `s0`, `s1`, ... by section in the order of the lanes.
[[nodiscard]] std::string timeline_chart(const Timeline& timeline);

/// The sections of the lanes, each once, in order.
[[nodiscard]] std::vector<std::string> sections_of(const Timeline& timeline);

}  // namespace maestro
