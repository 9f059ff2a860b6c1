// SPDX-License-Identifier: Apache-2.0
// Exit of a process of a failed run: ends and sweeps every reachable process and segment of the job, in bounded time.
//
// DE-1 (bounded exit): exit_now() ends the process within about two seconds, whatever hangs: a peer killed inside the
//       shm provider leaves a lock held for ever.
// DE-2 (nothing left): after the exit no process that it started runs, and no shared memory segment of theirs or of its
//       own is left.
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
  std::vector<ProcessIdentity> lost;        ///< of this job; processes of another PID namespace are skipped (PI-1)
  std::chrono::milliseconds patience{700};  ///< time for the started processes to end
  std::function<void()> close;              ///< orderly part, which may hang; may be empty
  std::function<void()> last;               ///< called last; must not hang; may be empty
};

/// Blocks the calling thread for ever: another thread is ending the process.
[[noreturn]] void await_exit();

/// Thread-safe: with two concurrent callers, the first to finish decides the status.
[[noreturn]] void exit_now(Launcher& launcher, const EmergencyExit& emergency_exit);

}  // namespace maestro
