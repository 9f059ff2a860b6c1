// SPDX-License-Identifier: Apache-2.0
// The list of a user's runs: a small file for each run's folder, in $XDG_STATE_HOME/maestro/runs or
// ~/.local/state/maestro/runs. It contains where runs are; their state is in their folders.
//
// RR-1 (bounded list): after list_run() the list has at most most_listed_runs entries and no folder that is gone; the
//       oldest entries are removed first.
// RR-2 (harmless list): an entry that cannot be read is left out, and a run never depends on the list.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

inline constexpr std::size_t most_listed_runs = 1000;

struct ListedRun {
  std::filesystem::path folder;  ///< absolute: train.out
  std::string job;
  std::string started;  ///< time of the last start, "2026-11-24T12:30:00.123Z"
};

/// Adds a run, in place of an earlier run in the folder. Each file appears completely or not at all (AF-1). Errors name
/// the list's folder or file, and the reason. Thread-safe, also between processes.
[[nodiscard]] Status list_run(const ListedRun& run);
/// Notes that the files of the listed run in `from` are now in `to`.
[[nodiscard]] Status move_listed_run(const std::filesystem::path& from, const std::filesystem::path& to);
/// Returns the runs whose folders exist, the latest start first.
[[nodiscard]] std::vector<ListedRun> listed_runs();

}  // namespace maestro
