// SPDX-License-Identifier: Apache-2.0
// The figures of a run on its page, from the run's report.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/page/curve_chart.hpp"
#include "runtime/page/timeline.hpp"

namespace maestro {

struct RunFigures {
  std::int64_t steps = 0;
  double exact_match = 0;  ///< share of the validation samples, in [0, 1]
  double validation_ce = 0;
  double samples_per_s = 0;
  double train_seconds = 0;
  double max_rss_mb = 0;
  std::string corpus;  ///< a line about the data
  std::string policy;
  std::vector<std::pair<std::string, double>> utilization;  ///< by section, of the makespan, mean of the steps
  double makespan_over_bound = 0;                           ///< all steps together; 0: not reported
  ThinnedCurve training;                                    ///< loss of section llm by step
  std::vector<ChartDot> validation;                         ///< ce of the validation after the last step
  std::vector<TimelineLane> lanes;                          ///< of sections that compute, in the order of the plan
};

/// `model` is the section whose loss is meant. Errors name the file.
[[nodiscard]] Result<RunFigures> read_run_figures(const std::filesystem::path& report, const std::string& model);

}  // namespace maestro
