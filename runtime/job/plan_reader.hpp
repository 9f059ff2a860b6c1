// SPDX-License-Identifier: Apache-2.0
// The table [plan] of a job file: the criteria with which `maestro plan` chose the layouts, and its predicted times.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/job/job_table.hpp"

namespace maestro {

/// The aim in choosing layouts: the fastest steps, the cheapest steps, or the fewest devices in addition to the devices
/// that sections keep.
enum class PlanObjective : std::uint8_t { time, money, extra };
inline constexpr std::array<std::string_view, 3> plan_objective_names{"time", "money", "extra"};

/// [plan]
struct PlanConfig {
  double predicted_step_ms = 0;  ///< predicted time of a step; 0: not predicted
  std::map<std::string, double> predicted_passes_ms =
      {};  ///< times of passes per step by section, the mean of its lanes
  PlanObjective objective = PlanObjective::time;
  std::vector<std::string> keep = {};  ///< sections that kept their devices ("extra")
  double stall = 0.01;                 ///< largest share of the time that kept sections may wait for others
  double headroom = 0;                 ///< share of a device's memory that layouts may need; 0: no limit
};

/// Reads [plan]. check_predictions compares its sections with the job's, together with the complete plan.
[[nodiscard]] PlanConfig read_plan(const JobTable& plan);

}  // namespace maestro
