// SPDX-License-Identifier: Apache-2.0
// Clocks of durations, in milliseconds.
#pragma once

#include <chrono>
#include <ctime>

namespace maestro {

using MsClock = double (*)();

/// Returns the time since a fixed point.
[[nodiscard]] inline double steady_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns the calling thread's CPU time: work without waits, and without other threads' turns on its core.
[[nodiscard]] inline double thread_cpu_ms() {
  timespec time{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);  // a thread always has it
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

}  // namespace maestro
