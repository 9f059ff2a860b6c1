// SPDX-License-Identifier: Apache-2.0
// Layouts and rankings as text for people. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/plan/certainty.hpp"
#include "apps/plan/job_planner.hpp"

namespace maestro {

/// The ranked layouts that were also run.
struct TriedLayouts {
  std::vector<double> step_ms;  ///< medians by layout
  double spread = 0;            ///< larger median of the first layout's rounds over the smaller, less 1
};

/// A ranking with all that its text needs.
struct RankingReport {
  std::string title;  ///< "distill on 2 CPU devices"
  std::string stage;  ///< the planned stage in words; empty without [[stages]]
  LayoutRanking ranking;
  std::vector<Certainty> certain;
  std::optional<TriedLayouts> tried;
  std::int64_t global_batch = 0;
  std::string generator;               ///< section that makes samples; empty: none
  std::vector<MadeLengths> made = {};  ///< samples that it makes for a step
  std::string lengths;                 ///< run whose lengths they have; empty: the most tokens that they may have
  std::size_t top = 0;                 ///< layouts in the table
};

/// Returns the mean tokens of completions.
[[nodiscard]] double mean_completion(const std::vector<MadeLengths>& made);
/// Returns the lines that `maestro plan` prints: a heading, the table, and what decides the choice.
[[nodiscard]] std::vector<std::string> ranking_lines(const RankingReport& report);

/// Returns "2 x m4 tensor 2 zero".
[[nodiscard]] std::string layout_text(const SectionLayout& layout);
/// Returns "2 x m4 cpu:0,1", and a share of GPUs: "m8 cuda:0 share 0.25".
[[nodiscard]] std::string placed_text(const RankedLayout& ranked, const std::string& section);
/// Returns a setting with runs of equal list elements joined: "teacher.speed=[7 x 1.000, 16 x 0.329]".
[[nodiscard]] std::string with_runs(const std::string& setting);
/// Returns "+12.3%" or "-1.2%".
[[nodiscard]] std::string signed_percent(double share);
/// Returns "teacher 0.80 to 1.40, student 0.70 to 1.10".
[[nodiscard]] std::string certainty_text(const std::vector<Certainty>& certainties);

}  // namespace maestro
