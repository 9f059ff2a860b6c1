// SPDX-License-Identifier: Apache-2.0
// Signals that end a run, as calls on a separate thread: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU. Schedulers send
// the last two before a limit; SIGHUP comes from a terminal that is closed.
//
// SW-1 (never deaf): without a SignalWatcher, such a signal ends the process with a line and status 130, except within
//       `repeat_after` after a signal that a watcher took, or after the watcher of a run that has ended in order.
// SW-2 (stop once): every signal except a second SIGINT starts the orderly end, however many arrive. A SIGINT counts as
//       the second only `repeat_after` after the first signal, because `timeout` and shells send a request twice.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace maestro {

/// Resets handlers that libraries set when they are loaded (libpsm2, which libfabric loads), and ignores SIGPIPE and
/// SIGXFSZ, so that a write reports EPIPE or EFBIG. SIGHUP remains ignored if it was (nohup). Call first in main, as
/// threads inherit its effects.
void prepare_signals();

/// Returns a name such as "SIGTERM"; "signal 99" for signals that do not end a run.
[[nodiscard]] std::string signal_name(int signal);

/// Decides the meaning of a signal for a run (SW-2). Not thread-safe.
class StopRequests {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Wish { nothing, stop_in_order, leave_at_once };
  static constexpr std::chrono::seconds repeat_after{1};

  Wish signalled(int signal, Time now);

 private:
  std::optional<Time> first_;
};

/// At most one object in a process.
class SignalWatcher {
 public:
  /// Calls `on_signal` on a separate thread, sequentially; once for a signal that arrives again before the call begins.
  /// Throws JobError (`unavailable`) if the thread cannot be started.
  explicit SignalWatcher(std::function<void(int signal)> on_signal);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;
  /// Notes that the process is about to end by itself: signals up to a second after the watcher's end change nothing.
  void forgive_late_signals() { forgives_ = true; }

 private:
  void run();
  bool forgives_ = false;
  std::function<void(int signal)> on_signal_;
  std::thread thread_;
};

}  // namespace maestro
