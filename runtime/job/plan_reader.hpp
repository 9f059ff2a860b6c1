// SPDX-License-Identifier: Apache-2.0
// The table [plan] of a job file: how `maestro plan` has chosen the layouts, and the times that it predicts for them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/job/job_table.hpp"

namespace maestro {

/// The aim of a choice of layouts: the fastest steps, the cheapest, or the fewest devices beside those that sections
/// keep.
enum class PlanObjective : std::uint8_t { time, money, extra };
inline constexpr std::array<std::string_view, 3> plan_objective_names{"time", "money", "extra"};

/// [plan]
struct PlanConfig {
  double predicted_step_ms = 0;                            ///< 0: the job has no prediction
  std::map<std::string, double> predicted_passes_ms = {};  ///< by section: of a step, the mean of its lanes
  PlanObjective objective = PlanObjective::time;
  std::vector<std::string> keep = {};  ///< sections that kept their devices ("extra")
  double stall = 0.01;                 ///< share of the time in which those may wait for others
  double headroom = 0;                 ///< share of a device's memory that layouts may need; 0: they have no limit
};

/// Reads [plan]. Whether its sections are those of the job is checked with the whole plan (check_predictions).
[[nodiscard]] PlanConfig read_plan(const JobTable& plan);

}  // namespace maestro
