// SPDX-License-Identifier: Apache-2.0
// Rank 0's services during a run: control service, live page, and the watchdog's view of the progress.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/control/control_service.hpp"
#include "actors/control/run_questions.hpp"
#include "actors/live/http_service.hpp"
#include "actors/process/process_placements.hpp"

namespace maestro {

/// Used by the main thread. Its services stop before the actors (PR-1).
class RunServices {
 public:
  RunServices(ProcessPart& part, BuiltProcess& built, ProcessPlacements& placements)
      : part_(part), built_(built), placements_(placements) {}

  /// Returns the keys of the job start, or else the keys that options or job name; null: none.
  [[nodiscard]] std::shared_ptr<const KeySet> keys() const;
  /// Opens the services that the options name, on rank 0. `stop_run`: called by `maestro stop`. Throws JobError.
  void open(std::function<void()> stop_run, bool keeps_record);
  /// Makes the watchdog follow the run's progress; `stalled` receives its line.
  void watch_progress(std::function<void(const std::string& line)> stalled);
  /// Counts the coordinator's events (CoordinatorOptions::events).
  [[nodiscard]] std::atomic<std::uint64_t>& events() { return events_; }
  /// Stops answering and removes the sockets, in a process that ends at once.
  void stop();
  /// Ends the services.
  void close();
  /// Releases the last actor handles, after the watchdog has stopped watching or all answers are refused.
  void release() { questions_.reset(); }
  /// Removes the local socket of the control service, if there is one.
  void remove_socket() const;

 private:
  void open_control(std::function<void()> stop_run);
  void open_http(bool keeps_record);
  /// Returns the current work of the coordinator and all replicas, for the watchdog.
  [[nodiscard]] StallLook look();

  ProcessPart& part_;
  BuiltProcess& built_;
  ProcessPlacements& placements_;
  std::atomic<std::uint64_t> events_ = 0;
  std::unique_ptr<ControlService> control_;  // may be null
  std::unique_ptr<HttpService> http_;        // null without --http
  std::string control_socket_;               // control service's local socket, or empty
  std::unique_ptr<RunQuestions> questions_;  // the watchdog's questions
};

}  // namespace maestro
