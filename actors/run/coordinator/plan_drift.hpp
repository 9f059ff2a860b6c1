// SPDX-License-Identifier: Apache-2.0
// The steps of a run beside those that [plan] of its job predicts. Pure.
//
// DV-1 (named): a run that differs by more than a tenth has a line with both times, and with the section whose passes
//       differ most in the same direction, if any do.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "runtime/graph/section_graph.hpp"
#include "runtime/job/plan_reader.hpp"

namespace maestro {

struct MeasuredStep;

/// Steps after which a run is compared, and the first of them, which are left out: sections start then.
inline constexpr std::size_t steps_before_comparison = 20;
inline constexpr std::size_t steps_of_the_start = 4;

struct PlanDrift {
  double predicted_ms = 0;
  double measured_ms = 0;          ///< median
  std::string section;             ///< whose passes explain most of the difference; empty: the passes of none do
  double predicted_passes_ms = 0;  ///< of it, as in [plan]
  double measured_passes_ms = 0;   ///< likewise: median
  /// Whether the run differs by more than a tenth.
  [[nodiscard]] bool is_off() const;
};

/// Compares the last of the measured steps, sixteen at most and one at least. `predicted` has a time of a step.
[[nodiscard]] PlanDrift drift_from(const PlanConfig& predicted, const SectionGraph& graph,
                                   const std::deque<MeasuredStep>& measured);

/// Returns "steps take 131.0 ms, 28% above the 102.4 ms of [plan]; passes of student take 80.1 ms instead of 61.0 ms:
/// choose again on this machine (maestro plan JOB.toml --vary all)".
[[nodiscard]] std::string text_of(const PlanDrift& drift);

}  // namespace maestro
