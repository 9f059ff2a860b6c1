// SPDX-License-Identifier: Apache-2.0
// The outcome of a run, as App::run() returns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/run/coordinator/run_rehearsal.hpp"
#include "actors/run/record/run_record.hpp"

namespace maestro {

struct RunResult {
  int status = 1;  ///< exit status for main
  bool interrupted = false;
  std::map<std::string, std::map<std::string, double>>
      validation;  ///< of the last validation, by section: loss, ce, kl, teacher_ce
  double samples_per_s = 0;
  double tokens_per_s = 0;
  double train_seconds = 0;
  double wall_seconds = 0;  ///< since the program began to prepare the run
  double max_rss_mb = 0;
  double estimated_mb = 0;  ///< of max_rss_mb, before the run
  std::string provider;
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;
  std::uint64_t last_step = 0;
  std::uint64_t steps = 0;                     ///< of the job; 0 for a process other than rank 0
  std::map<std::string, double> losses;        ///< of each section's last step
  std::vector<std::string> recoveries;         ///< a line for each
  std::vector<std::string> left_out;           ///< samples that could not be read, with the reason
  std::map<std::string, std::string> weights;  ///< section -> folder of the trained weights, Hugging Face layout
  std::map<std::string, std::string> models;   ///< section -> folder of its export, for other programs
  std::vector<SchedulingRow> scheduling;       ///< of the last steps; on emulated devices of all
  std::optional<RunRehearsal> rehearsal;       ///< of the last steps; none: they cannot be rehearsed, or need not be
  std::string record;                          ///< folder
  std::string resume;  ///< what --resume takes to continue the run; empty: there is no checkpoint
  std::string checkpoint;
  std::string report;
  std::string trace;
};

}  // namespace maestro
