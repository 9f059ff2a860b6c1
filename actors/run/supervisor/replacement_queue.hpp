// SPDX-License-Identifier: Apache-2.0
// The processes that come to a running job, one at a time: replacements of lost processes (SV-9), and processes that
// join (SV-10). Pure; belongs to PlacementMover.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "actors/messages/addresses.hpp"

namespace maestro {

/// A process that rank 0 starts again, or that joins.
struct Replacement {
  ProcessId process;
  std::string section;              ///< whose placements it takes; empty: those that it had at the start
  std::optional<ProcessInfo> info;  ///< once it has introduced itself
  bool connected = false;           ///< to all others

  [[nodiscard]] std::string name() const { return "process " + std::to_string(process.value()); }
  [[nodiscard]] bool starts_again() const { return section.empty(); }
};

/// Not thread-safe.
class ReplacementQueue {
 public:
  /// A lost process is to start again after those before it.
  void add(ProcessId lost) { waiting_.push_back(lost); }
  /// Returns the next process to start, which is the current one from now on; nothing while another is.
  [[nodiscard]] std::optional<ProcessId> next() {
    if (current_ || waiting_.empty()) return std::nullopt;
    begin(waiting_.front(), {});
    waiting_.pop_front();
    return current_->process;
  }
  /// A process comes for placements of a section.
  void begin(ProcessId process, std::string section) { current_ = Replacement{process, std::move(section), {}, false}; }
  /// The current process has its placements, or does not come.
  void end() { current_.reset(); }
  [[nodiscard]] bool empty() const { return !current_ && waiting_.empty(); }
  [[nodiscard]] std::optional<Replacement>& current() { return current_; }
  [[nodiscard]] bool is_current(ProcessId process) const { return current_ && current_->process == process; }

 private:
  std::deque<ProcessId> waiting_;
  std::optional<Replacement> current_;
};

}  // namespace maestro
