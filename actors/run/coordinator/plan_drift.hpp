// SPDX-License-Identifier: Apache-2.0
// Compares the step time of a run with the prediction in [plan] of its job. Pure.
//
// DV-1 (named): if a run differs by more than a tenth, a line has both times, and the section whose passes differ most
//       in the same direction, if there is one.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "runtime/graph/section_graph.hpp"
#include "runtime/job/plan_reader.hpp"

namespace maestro {

struct MeasuredStep;

/// Number of steps after which a run is compared, and of first steps that are left out since sections still start.
inline constexpr std::size_t steps_before_comparison = 20;
inline constexpr std::size_t steps_of_the_start = 4;

struct PlanDrift {
  double predicted_ms = 0;
  double measured_ms = 0;          ///< median
  std::string section;             ///< section whose passes explain most of the difference; empty: none
  double predicted_passes_ms = 0;  ///< the section's passes in [plan]
  double measured_passes_ms = 0;   ///< the section's passes, median
  /// Returns whether the run differs by more than a tenth.
  [[nodiscard]] bool is_off() const;
};

/// Compares the last measured steps, between one and sixteen. `predicted` has a step time.
[[nodiscard]] PlanDrift drift_from(const PlanConfig& predicted, const SectionGraph& graph,
                                   const std::deque<MeasuredStep>& measured);

/// Returns a line for the user: "steps take 131.0 ms, 28% above the 102.4 ms of [plan]", the passes that differ, and
/// how to choose a layout again.
[[nodiscard]] std::string text_of(const PlanDrift& drift);

}  // namespace maestro
