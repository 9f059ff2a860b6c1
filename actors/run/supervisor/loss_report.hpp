// SPDX-License-Identifier: Apache-2.0
// The report about a lost process: its label, its step, how it ended, and the waits of the survivors (SV-4). Pure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "actors/run/supervisor/supervised_run.hpp"

namespace maestro {

/// Belongs to the supervisor; the run must outlive it.
class LossReport {
 public:
  /// The loss is noticed now.
  LossReport(const SupervisedRun& run, const ProcessInfo& lost);
  void add(const WaitingFor& survivor);
  void add(std::string line) { lines_.push_back(std::move(line)); }
  /// Returns "lost process 2 (pid 4711) in step 7: it ended with signal 9", as known now.
  [[nodiscard]] std::string text() const;
  /// Returns the outcome of a run that ends with this loss.
  [[nodiscard]] RunOutcome outcome() const;

 private:
  const SupervisedRun* run_;
  ProcessId process_;
  ProcessIdentity identity_;
  std::chrono::steady_clock::time_point noticed_ = std::chrono::steady_clock::now();
  std::string label_;
  std::string step_;
  std::vector<std::string> lines_;
};

}  // namespace maestro
