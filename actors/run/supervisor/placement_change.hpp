// SPDX-License-Identifier: Apache-2.0
// A move of placements as rank 0 follows it: first every process gives the replicas that begin anew and what the rings
// of its other replicas hold, then every process connects to the addresses of all. Pure; belongs to the supervisor.
//
// MV-1 (one at a time): a move begins when the one before has ended.
// MV-2 (of this move): an answer counts once per process, and only with the epoch of the move.
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
  /// A process has answered. Returns true for the last: directory() is complete.
  bool taken(const PlacementsTaken& answer);
  /// A process is connected. Returns true for the last: the move has ended.
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
