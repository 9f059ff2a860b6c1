// SPDX-License-Identifier: Apache-2.0
// A section replica's part of a checkpoint: jobs copy its state on a device and queue it at the writer, which reports
// to the coordinator.
#pragma once

#include <memory>
#include <vector>

#include "actors/replica/replica_rank.hpp"

namespace maestro {

/// Not thread-safe; belongs to the replica's actor. Jobs run on the device of the first rank in turn, while the other
/// ranks are idle.
class ReplicaSnapshot {
 public:
  /// Failures go to `replica`.
  ReplicaSnapshot(const ReplicaSpec& spec, const StepBoundary& mark, caf::actor replica, caf::actor coordinator);
  /// Copies `which` moments out of the gradients, where they were gathered.
  [[nodiscard]] ReplicaRank::Job load_gathered_moments(ParameterBuffer which) const;
  /// Copies everything else and has it written. The last job.
  [[nodiscard]] ReplicaRank::Job write() const;

 private:
  struct Capture;
  std::shared_ptr<Capture> capture_;  // shared with the jobs
};

}  // namespace maestro
