// SPDX-License-Identifier: Apache-2.0
// How a process stops: signals and `maestro stop` end the run in order, a repeated Ctrl-C, a signal before the first
// step and the watchdog end the process at once.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "actors/process/built_process.hpp"
#include "actors/process/run_services.hpp"
#include "actors/process/signal_watcher.hpp"

namespace maestro {

/// Thread-safe, but for signalled().
class StopPolicy {
 public:
  StopPolicy(ProcessPart& part, BuiltProcess& built, RunServices& services)
      : part_(part), built_(built), services_(services) {}

  /// A signal has arrived; on the thread of signals.
  void signalled(int signal);
  /// Ends the run in order, on rank 0. `reason`: a signal to another process, or empty.
  void stop_in_order(const std::string& reason);
  /// Another process has received a signal.
  void stop_for_another();
  /// Returns whether an orderly end has begun.
  [[nodiscard]] bool stopping() const { return stopping_; }

  /// There is a supervisor to inform.
  void supervised() { supervised_ = true; }
  /// The coordinator exists.
  void begun() { begun_ = true; }
  /// The actors are about to end.
  void ends() { begun_ = supervised_ = false; }
  /// Rank 0 starts another process if this one ends, which therefore prints nothing.
  void replaceable() { replaceable_ = true; }

  /// A phase of this process has exceeded its limit.
  [[noreturn]] void expired(const std::string& line);
  /// Ends the process of a failed run of several processes (PR-2).
  [[noreturn]] void leave_failed(const std::vector<ProcessIdentity>& lost);
  /// Removes files of this process, and sockets of the processes that it has ended.
  void tidy_up(const std::vector<ProcessIdentity>& lost) const;

 private:
  [[noreturn]] void leave_before_the_start(const std::string& cause);
  [[noreturn]] void leave(int status);

  ProcessPart& part_;
  BuiltProcess& built_;
  RunServices& services_;
  StopRequests requests_;
  std::atomic<bool> stopping_ = false;     // the orderly end has begun
  std::atomic<bool> leaving_ = false;      // before the first step
  std::atomic<bool> supervised_ = false;   // there is a supervisor to inform
  std::atomic<bool> begun_ = false;        // the coordinator exists
  std::atomic<bool> replaceable_ = false;  // rank 0 starts another process where this one ends
};

/// Removes sockets of lost processes, of children and of this process.
void remove_sockets(const std::vector<ProcessIdentity>& lost, const std::vector<std::int64_t>& children);

}  // namespace maestro
