// SPDX-License-Identifier: Apache-2.0
// The load of this machine by other processes: pass times that are measured on a loaded machine are too long.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace maestro {

struct MachineLoad {
  double core_share = 1;             ///< CPU time per wall time of busy threads; about 1 on an idle machine
  std::optional<double> runnable{};  ///< mean number of runnable threads in the last minute, from /proc/loadavg
};

/// Keeps `threads` threads busy for `time`, and compares their CPU time with the wall time.
[[nodiscard]] MachineLoad measure_load(int threads, std::chrono::milliseconds time = std::chrono::milliseconds(100));

/// Returns the first figure of /proc/loadavg, "0.52 0.58 0.59 2/1234 5678"; nothing for another text. Pure.
[[nodiscard]] std::optional<double> read_load_average(std::string_view text);

/// Returns whether times that are measured under this load are of use: busy threads get at least nine tenths of a core.
[[nodiscard]] bool allows_measuring(const MachineLoad& load);
/// Returns a line about a load that does not allow measuring; empty for another. Pure.
[[nodiscard]] std::string load_warning(const MachineLoad& load, int cores);

}  // namespace maestro
