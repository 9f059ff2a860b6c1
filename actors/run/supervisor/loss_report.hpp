// SPDX-License-Identifier: Apache-2.0
// The report about a lost process: its label and step, how it ended, and what the survivors wait for (SV-4). Pure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "actors/run/supervisor/supervised_run.hpp"

namespace maestro {

/// Belongs to the supervisor; the run must outlive it.
class LossReport {
 public:
  /// Takes the current time as that at which the loss was noticed.
  LossReport(const SupervisedRun& run, const ProcessInfo& lost);
  void add(const WaitingFor& survivor);
  void add(std::string line) { lines_.push_back(std::move(line)); }
  /// Returns the known facts: "lost process 2 (pid 4711) in step 7: it ended with signal 9".
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
