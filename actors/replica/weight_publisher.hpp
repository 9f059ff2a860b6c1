// SPDX-License-Identifier: Apache-2.0
// The sender of a register: copies the values of a trained section, and names the generators that take them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "actors/messages/run_actor.hpp"
#include "actors/replica/replica_rank.hpp"

namespace maestro {

/// Not thread-safe; belongs to the replica's actor.
class WeightPublisher {
 public:
  /// `spec` outlives it.
  explicit WeightPublisher(const ReplicaSpec& spec) : spec_(&spec) {}
  /// Returns whether the replica sends: the section's first, if a generator takes its weights.
  [[nodiscard]] bool sends() const {
    return spec_->replica == ReplicaIndex(0) && spec_->graph->publishes(spec_->section);
  }
  void connect(const Directory& directory);
  /// Returns the maker of the job that copies the values before step `version`.
  [[nodiscard]] std::function<RankJob(ReplicaRank&)> copies(StepId version);
  /// Sends the copy to the generators, after the job; before the first copy the versions of the checkpoint.
  void send_from(RunActor& replica);
  /// Returns the versions before step `last` + 1 that later steps still read, for a checkpoint of step `last`.
  [[nodiscard]] std::vector<std::shared_ptr<const WeightVersion>> earlier(StepId last) const;
  /// Releases the generators' handles.
  void leave() { generators_.clear(); }

 private:
  const ReplicaSpec* spec_;
  std::shared_ptr<WeightVersion> version_;                  // copied and not yet sent, or null
  std::vector<std::shared_ptr<const WeightVersion>> sent_;  // the last of them
  std::vector<caf::actor> generators_;
};

}  // namespace maestro
