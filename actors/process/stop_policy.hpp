// SPDX-License-Identifier: Apache-2.0
// Decides how a process stops: signals and `maestro stop` end the run in order; a repeated Ctrl-C, a signal before the
// first step and the watchdog end the process at once.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "actors/process/built_process.hpp"
#include "actors/process/run_services.hpp"
#include "actors/process/signal_watcher.hpp"

namespace maestro {

/// Thread-safe, except signalled().
class StopPolicy {
 public:
  StopPolicy(ProcessPart& part, BuiltProcess& built, RunServices& services)
      : part_(part), built_(built), services_(services) {}

  /// Handles a signal. Called on the SignalWatcher's thread.
  void signalled(int signal);
  /// Ends the run in order, on rank 0. `reason`: a signal to another process, or empty.
  void stop_in_order(const std::string& reason);
  /// Stops because another process has received a signal.
  void stop_for_another();
  /// Returns whether an orderly end has begun.
  [[nodiscard]] bool stopping() const { return stopping_; }

  /// Notes that the supervisor exists, which is informed from now on.
  void supervised() { supervised_ = true; }
  /// Notes that the coordinator exists.
  void begun() { begun_ = true; }
  /// Notes that the actors are about to end.
  void ends() { begun_ = supervised_ = false; }
  /// Notes that the run has ended in order: only a repeated Ctrl-C still ends the process at once.
  void complete() { complete_ = true; }
  /// Notes that rank 0 starts a replacement if this process ends, which therefore prints nothing.
  void replaceable() { replaceable_ = true; }

  /// Ends the process after one of its phases has exceeded the limit.
  [[noreturn]] void expired(const std::string& line);
  /// Ends this process after a run with several processes has failed (PR-2).
  [[noreturn]] void leave_failed(const std::vector<ProcessIdentity>& lost);
  /// Removes this process's files, and the sockets of processes that it has ended.
  void tidy_up(const std::vector<ProcessIdentity>& lost) const;

 private:
  [[noreturn]] void leave_before_the_start(const std::string& cause);
  [[noreturn]] void leave(int status);

  ProcessPart& part_;
  BuiltProcess& built_;
  RunServices& services_;
  StopRequests requests_;
  std::atomic<bool> stopping_ = false;     // the orderly end has begun
  std::atomic<bool> leaving_ = false;      // the process ends before the first step
  std::atomic<bool> supervised_ = false;   // the supervisor exists
  std::atomic<bool> begun_ = false;        // the coordinator exists
  std::atomic<bool> complete_ = false;     // the run has ended in order
  std::atomic<bool> replaceable_ = false;  // rank 0 starts a replacement if this process ends
};

/// Removes the sockets of lost processes, children and this process.
void remove_sockets(const std::vector<ProcessIdentity>& lost, const std::vector<std::int64_t>& children);

}  // namespace maestro
