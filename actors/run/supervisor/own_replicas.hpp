// SPDX-License-Identifier: Apache-2.0
// The actors of a process, watched by its supervisor (SV-6), and their part in a move of placements (SV-8): replicas of
// repeatable sections begin anew, all others renew their inputs.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "actors/run/supervisor/supervised_run.hpp"

namespace maestro {

/// Belongs to the supervisor; the run must outlive it.
class OwnReplicas {
 public:
  explicit OwnReplicas(SupervisedRun& run) : run_(run) {}

  void watch(const std::vector<OwnActor>& actors);
  /// Returns the label of a watched actor; null for others.
  [[nodiscard]] const std::string* find(const caf::actor_addr& actor) const;
  /// Takes this process's new placements, and sends the addresses of all replicas to rank 0.
  void move(const MovePlacements& order);
  /// Ends the move: sends the new directory to all replicas.
  void go_on(const PlacementsMoved& moved);
  void cannot_move(const std::string& problem) const;
  /// Returns whether another actor has taken the placement of this one.
  [[nodiscard]] bool retired(const caf::actor_addr& actor) const { return retired_.contains(actor); }
  void clear();

 private:
  void moved(const ReplicaAddress& address);
  void answer_if_complete();

  SupervisedRun& run_;
  std::map<caf::actor_addr, std::string> labels_;
  std::set<caf::actor_addr> retired_;
  PlacementsTaken taken_;        // answer to rank 0, while replicas move
  std::size_t answers_due_ = 0;  // replicas that have not answered
};

}  // namespace maestro
