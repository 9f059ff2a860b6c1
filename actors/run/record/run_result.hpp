// SPDX-License-Identifier: Apache-2.0
// The outcome of a run, returned by App::run().
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
  int status = 1;     ///< exit status for main
  std::string error;  ///< message of a failed run; empty: it has not failed
  bool interrupted = false;
  std::map<std::string, std::map<std::string, double>>
      validation;  ///< metrics of the last validation, by section: loss, ce, kl, teacher_ce
  double samples_per_s = 0;
  double tokens_per_s = 0;
  double train_seconds = 0;
  double wall_seconds = 0;  ///< time since the program began to prepare the run
  double max_rss_mb = 0;
  double estimated_mb = 0;  ///< estimate of max_rss_mb, made before the run
  std::string provider;
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;
  std::uint64_t last_step = 0;
  std::uint64_t steps = 0;                     ///< steps of the job; 0 on other ranks than 0
  std::map<std::string, double> losses;        ///< loss of each section's last step
  std::map<std::string, double> made;          ///< figures of the last step's made samples; empty: there are none
  std::vector<std::string> recoveries;         ///< a line for each
  std::vector<std::string> left_out;           ///< samples that could not be read, with the reason
  std::map<std::string, std::string> weights;  ///< folder of trained weights by section, Hugging Face layout
  std::map<std::string, std::string> models;   ///< folder of the export for other programs, by section
  std::vector<SchedulingRow> scheduling;       ///< rows of the last steps; all steps on emulated devices
  std::optional<RunRehearsal> rehearsal;       ///< rehearsal of the last steps; none: impossible or not wanted
  std::string record;                          ///< the record's folder
  std::string resume;                          ///< value of --resume that continues the run; empty: no checkpoint
  std::string checkpoint;
  std::string report;
  std::string trace;
};

}  // namespace maestro
