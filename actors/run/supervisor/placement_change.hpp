// SPDX-License-Identifier: Apache-2.0
// Rank 0's view of a move of placements: first every process reports its new replicas and the contents of its other
// replicas' rings, then every process connects to all addresses. Pure; belongs to the supervisor.
//
// MV-1 (one at a time): a move begins only after the previous one has ended.
// MV-2 (of this move): an answer counts once per process, and only with the move's epoch.
#pragma once

#include <set>
#include <vector>

#include "actors/messages/addresses.hpp"
#include "actors/messages/messages.hpp"

namespace maestro {

/// Not thread-safe.
class PlacementChange {
 public:
  [[nodiscard]] bool under_way() const { return !missing_.empty(); }
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  /// Begins a move whose answers come from the processes of `directory`. Returns false, without effect, during a move.
  bool begin(Epoch epoch, Directory directory);
  /// Counts a process's answer. Returns true for the last answer: directory() is complete.
  bool taken(const PlacementsTaken& answer);
  /// Counts a connected process. Returns true for the last process: the move has ended.
  bool ready(const PlacementsReady& answer);
  [[nodiscard]] const Directory& directory() const { return directory_; }
  [[nodiscard]] const std::vector<RingArrivals>& arrivals() const { return arrivals_; }

 private:
  void await_all();
  bool answered(Epoch epoch, ProcessId process, bool connecting);

  Epoch epoch_;
  bool connecting_ = false;
  std::set<ProcessId> missing_;
  Directory directory_;
  std::vector<RingArrivals> arrivals_;
};

}  // namespace maestro
