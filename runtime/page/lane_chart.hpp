// SPDX-License-Identifier: Apache-2.0
// Every lane's work over the steps of a run: a row for each, busy and waiting times stacked. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "runtime/page/lane_history.hpp"

namespace maestro {

/// Returns SVG; empty without spans. `colour_of` returns the number of a section's colour class.
[[nodiscard]] std::string lane_chart(const std::vector<RunLane>& lanes,
                                     const std::function<std::size_t(const std::string& section)>& colour_of);

}  // namespace maestro
