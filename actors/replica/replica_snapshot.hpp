// SPDX-License-Identifier: Apache-2.0
// A section replica's part of a checkpoint: its state is copied on a device, in one piece of work or in several, and
// handed to the writer, which tells the coordinator.
#pragma once

#include <memory>
#include <vector>

#include "actors/replica/replica_rank.hpp"

namespace maestro {

/// Not thread-safe; belongs to the replica's actor. Jobs are for the device of the first rank, one after another, while
/// the other ranks rest.
class ReplicaSnapshot {
 public:
  /// Failures go to `replica`.
  ReplicaSnapshot(const ReplicaSpec& spec, const StepBoundary& mark, caf::actor replica, caf::actor coordinator);
  /// Copies `which` moments out of the gradients, where they were gathered.
  [[nodiscard]] ReplicaRank::Job load_gathered_moments(ParameterBuffer which) const;
  /// Copies everything else and has it written. The last job.
  [[nodiscard]] ReplicaRank::Job write() const;

 private:
  struct Taken;
  std::shared_ptr<Taken> taken_;  // shared with the jobs
};

}  // namespace maestro
