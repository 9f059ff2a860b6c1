// SPDX-License-Identifier: Apache-2.0
// The progress of a run as its folder has it: read from few lines of the record, for lists of runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/page/run_page.hpp"

namespace maestro {

struct RunProgress {
  RecordedState state = RecordedState::under_way;
  std::uint64_t step = 0;                ///< the last recorded step; 0: none
  std::uint64_t steps = 0;               ///< train.steps; 0: unknown, as of a job with epochs
  std::map<std::string, double> losses;  ///< loss at the last step, by section; NaN: not finite
  std::string error;                     ///< error of a failed run
};

/// Reads all events, and of the steps only the last. A record without an end is cut_off if no process holds the folder,
/// else under_way. Errors name the file; a folder without a record: not_found.
[[nodiscard]] Result<RunProgress> read_run_progress(const std::filesystem::path& run_folder);

}  // namespace maestro
