// SPDX-License-Identifier: Apache-2.0
// Figures of a rehearsal: the time per step, and the uses of each section's time. Pure.
//
// SH-1 (whole): the shares of a section add up to 1.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/rehearsal/rehearsal.hpp"

namespace maestro {

/// The time between steps in a long run: the first two steps are left out, because sections start then.
struct SteadySteps {
  double begin_ms = 0;
  double end_ms = 0;
  std::size_t steps = 0;
  [[nodiscard]] double period_ms() const { return (end_ms - begin_ms) / static_cast<double>(steps); }
};

/// Returns the steady steps; nothing for fewer than four. `step_ends_ms`: end times of training steps, in order.
[[nodiscard]] std::optional<SteadySteps> steady_steps(const std::vector<double>& step_ends_ms);

/// Shares of a section's time, over all lanes.
struct SectionShares {
  double passes = 0;
  double step_ends = 0;
  std::map<std::string, double> waits;  ///< wait shares, by reason in WaitReasons
};

/// Returns the shares by name of section or stage, without sources.
[[nodiscard]] std::map<std::string, SectionShares> section_shares(const Rehearsed& rehearsed, const SectionGraph& graph,
                                                                  const SteadySteps& time);

/// Returns the means over the stages of a section.
[[nodiscard]] SectionShares mean_shares(const std::map<std::string, SectionShares>& by_stage,
                                        const std::string& section);

/// Returns the milliseconds per step that each section spends in passes, the mean of its replicas and stages.
[[nodiscard]] std::map<std::string, double> passes_ms(const std::map<std::string, SectionShares>& shares,
                                                      double step_ms);

}  // namespace maestro
