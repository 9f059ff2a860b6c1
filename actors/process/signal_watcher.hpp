// SPDX-License-Identifier: Apache-2.0
// Signals that end a run, as calls on a thread of their own: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU. Schedulers
// send the last two before a limit; SIGHUP comes from a terminal that is closed.
//
// SW-1 (never deaf): without a SignalWatcher, such a signal ends the process with a line and status 130; not within
//       `repeat_after` of a signal that a watcher took.
// SW-2 (stop once): every signal except a second SIGINT starts the orderly end, however many arrive. A SIGINT counts as
//       the second only `repeat_after` after the first signal, because `timeout` and shells send a request twice.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace maestro {

/// Call first in main: threads inherit its effects. Takes the signals back from libraries that set handlers when they
/// are loaded (libpsm2, which libfabric loads), and ignores SIGPIPE and SIGXFSZ, so that a write reports EPIPE or
/// EFBIG. SIGHUP stays ignored when it was (nohup).
void prepare_signals();

/// Returns "SIGTERM"; "signal 99" for signals without a name here.
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

/// At most a single object in a process.
class SignalWatcher {
 public:
  /// Calls `on_signal` on its own thread, sequentially; once for a signal that arrives again before the call begins.
  /// Throws JobError, `unavailable`: no thread available.
  explicit SignalWatcher(std::function<void(int signal)> on_signal);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void run();
  std::function<void(int signal)> on_signal_;
  std::thread thread_;
};

}  // namespace maestro
