// SPDX-License-Identifier: Apache-2.0
// Exit of a process from a failed run: ends the job's reachable processes and removes their segments, in bounded time.
//
// DE-1 (bounded exit): exit_now() ends the process within about two seconds, whatever hangs, such as a lock left by a
//       peer that was killed inside the shm provider.
// DE-2 (nothing left): after the exit, all processes that it started have ended, and the shared memory segments of all
//       are removed.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "actors/launch/launcher.hpp"
#include "runtime/core/process_identity.hpp"

namespace maestro {

/// Limit of a phase that ends with exit_now(), which bounds itself (DE-1).
inline constexpr std::chrono::milliseconds departure_limit(5000);

struct EmergencyExit {
  int status = 1;
  std::vector<ProcessIdentity> lost;        ///< lost processes; those in another PID namespace are skipped (PI-1)
  std::chrono::milliseconds patience{700};  ///< time for the started processes to end
  std::function<void()> close;              ///< orderly part; may hang; may be empty
  std::function<void()> last;               ///< called last; must not hang; may be empty
};

/// Blocks the calling thread forever: another thread is ending the process.
[[noreturn]] void await_exit();

/// Ends the process (DE-1, DE-2). Thread-safe: with two concurrent callers, the first to finish decides the status.
[[noreturn]] void exit_now(Launcher& launcher, const EmergencyExit& emergency_exit);

}  // namespace maestro
