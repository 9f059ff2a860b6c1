// SPDX-License-Identifier: Apache-2.0
// The runs of a user: the listed runs (run_list.hpp), and runs on this host that only their control service shows. A
// run counts as live if its process holds the folder's lock or answers at its address; the list alone is not trusted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "actors/control/control_client.hpp"

namespace maestro {

struct KnownRun {
  std::filesystem::path folder;  ///< empty: unknown
  std::string job;
  std::string started;  ///< "2026-11-24T12:30:00.123Z"; empty: unknown
  bool live = false;
  std::string address;  ///< address of a live run's control service; empty: none
};

/// Returns all known runs: live runs first, then the latest start first. Throws JobError for an unusable runtime
/// folder.
[[nodiscard]] std::vector<KnownRun> known_runs();

/// A run at a moment.
struct RunState {
  /// "ended", "interrupted", "failed", "lost" or "unknown" for past runs; for live runs the state in `maestro status`,
  /// "running" for a run without a control service, or "no answer".
  std::string word;
  std::uint64_t step = 0;                ///< the last complete step
  std::uint64_t steps = 0;               ///< steps of the run; 0: unknown
  std::map<std::string, double> losses;  ///< last loss in the record, by section
  std::string reason;                    ///< reason of the failure
};

/// Reads a run's record and queries its control service.
[[nodiscard]] RunState state_of(const KnownRun& run);
/// Returns "running, step 3 of 500", "interrupted after step 9 of 500" or "failed after step 9: no space".
[[nodiscard]] std::string state_text(const RunState& state);
/// Returns the folder as a user would name it here: relative if it is inside the working directory.
[[nodiscard]] std::string folder_text(const KnownRun& run);

/// The words of a command line that choose a run.
struct RunChoice {
  std::string run;        ///< folder (train.out) or address; empty: the only live run
  ControlTarget service;  ///< --at, --keys and --token-file
};

/// Returns the control service of the chosen run. Throws JobError (not_found or unavailable) if that run or any run is
/// not live, and ListedError with a line for each live run if there are several and none is chosen.
[[nodiscard]] ControlTarget service_of(const RunChoice& choice);

}  // namespace maestro
