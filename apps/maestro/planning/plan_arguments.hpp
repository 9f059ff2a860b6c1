// SPDX-License-Identifier: Apache-2.0
// The arguments of `maestro plan JOB` and `maestro profile JOB`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/maestro/run/plug_in_option.hpp"
#include "apps/plan/planned_job.hpp"

namespace maestro {

struct PlanArguments {
  std::filesystem::path job;
  std::vector<std::string> overrides;  ///< settings as for train --set
  PlugInChoice plug_ins;
  PlannedJobOptions on_machine;
  std::filesystem::path out;       ///< the job with the chosen keys; empty: not written
  std::filesystem::path page;      ///< HTML; empty: not written
  std::filesystem::path cluster;   ///< description of the devices; empty: this machine's
  std::string kept;                ///< with `cluster`: section that keeps its devices
  double stall = 0.01;             ///< share of the time that the critical section may wait
  std::string objective = "time";  ///< with `cluster`: "time" or "money"
  double most_per_hour = 0;        ///< with `cluster`: price of all hosts; 0: no limit
  std::filesystem::path from;      ///< with `cluster`: a job written by plan, whose places are kept; empty: none
  std::filesystem::path timeline;  ///< with `cluster`: the rehearsed lanes as a trace; empty: not written
  std::filesystem::path curve;     ///< with `cluster`: cells for schedulers; empty: not written
  bool json = false;
};

}  // namespace maestro
