// SPDX-License-Identifier: Apache-2.0
// How a process of a failed run leaves: everything of the job that it can reach is ended and swept, in bounded time.
//
// DE-1: exit_now() ends the process within about two seconds, whatever hangs: a peer killed inside the shm provider
// leaves
//       a lock held for ever.
// DE-2: when it has ended, no process that it started runs, and no segment of theirs or of its own is left.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "actors/launch/launcher.hpp"
#include "runtime/core/process_identity.hpp"

namespace maestro {

struct EmergencyExit {
  int status = 1;
  std::vector<ProcessIdentity> lost;        ///< of this job; those of another PID namespace are left alone (PI-1)
  std::chrono::milliseconds patience{700};  ///< for the started processes to end by themselves
  std::function<void()> close;              ///< the orderly part, which may hang; may be empty
  std::function<void()> last;               ///< just before the process ends; must not hang; may be empty
};

/// Thread-safe: of two callers, the one that is done first decides the status.
[[noreturn]] void exit_now(Launcher& launcher, const EmergencyExit& emergency_exit);

}  // namespace maestro
