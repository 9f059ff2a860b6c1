// SPDX-License-Identifier: Apache-2.0
// The arguments of `maestro plan JOB` and `maestro profile JOB`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/maestro/run/plug_in_option.hpp"

namespace maestro {

struct PlanArguments {
  std::filesystem::path job;
  std::vector<std::string> overrides;  ///< as for train --set
  PlugInChoice plug_ins;
  std::vector<std::string> varied;  ///< keys that the job gives and that are chosen nevertheless
  std::filesystem::path profile;    ///< prices that are read, and written with those measured; empty: none
  std::int64_t cpu_devices = 0;     ///< 0: as many as there are cores
  std::int64_t gpus = 0;            ///< 0: all, where there are any and processors are not meant
  std::int64_t measure_ms = 60;     ///< for each layout of a section at least
  std::int64_t top = 5;             ///< layouts that are printed
  std::filesystem::path out;        ///< the job with the chosen keys; empty: not written
  std::filesystem::path page;       ///< HTML; empty: not written
  std::int64_t tries = 0;           ///< layouts that are also run
  std::int64_t steps = 20;          ///< steps of each trial run
  std::filesystem::path cluster;    ///< description of the devices; empty: this machine's
  std::string kept;                 ///< there: section that keeps its devices
  double stall = 0.01;              ///< share of the time that it may wait
  std::string objective = "time";   ///< there: "time" or "money"
  double most_per_hour = 0;         ///< there: price of all hosts; 0: no limit
  std::filesystem::path from;       ///< there: a job that plan has written, whose places are kept; empty: none
  std::filesystem::path timeline;   ///< there: the rehearsed lanes as a trace; empty: not written
  std::filesystem::path curve;      ///< there: cells for schedulers; empty: not written
  bool json = false;
};

}  // namespace maestro
