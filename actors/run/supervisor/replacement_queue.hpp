// SPDX-License-Identifier: Apache-2.0
// The processes that a running job admits, one at a time: replacement processes (SV-9) and processes that join (SV-10).
// Pure; belongs to PlacementMover.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "actors/messages/addresses.hpp"

namespace maestro {

/// A replacement process, or a process that joins.
struct Replacement {
  ProcessId process;
  std::string section;              ///< section whose placements it takes; empty: its home placements
  std::optional<ProcessInfo> info;  ///< none before it has introduced itself
  bool connected = false;           ///< connected to all other processes

  [[nodiscard]] std::string name() const { return "process " + std::to_string(process.value()); }
  [[nodiscard]] bool starts_again() const { return section.empty(); }
};

/// Not thread-safe.
class ReplacementQueue {
 public:
  /// Appends a lost process, which is to start again.
  void add(ProcessId lost) { waiting_.push_back(lost); }
  /// Makes the next process to start the current one, and returns it; nothing while there is a current process.
  [[nodiscard]] std::optional<ProcessId> next() {
    if (current_ || waiting_.empty()) return std::nullopt;
    begin(waiting_.front(), {});
    waiting_.pop_front();
    return current_->process;
  }
  /// Makes a process current that takes placements of `section`.
  void begin(ProcessId process, std::string section) { current_ = Replacement{process, std::move(section), {}, false}; }
  /// Removes the current process, which has its placements or has failed.
  void end() { current_.reset(); }
  [[nodiscard]] bool empty() const { return !current_ && waiting_.empty(); }
  [[nodiscard]] std::optional<Replacement>& current() { return current_; }
  [[nodiscard]] bool is_current(ProcessId process) const { return current_ && current_->process == process; }

 private:
  std::deque<ProcessId> waiting_;
  std::optional<Replacement> current_;
};

}  // namespace maestro
