// SPDX-License-Identifier: Apache-2.0
// Writes a replica's part of a checkpoint: jobs copy its state on a device and queue it at the writer, which reports to
// the coordinator.
#pragma once

#include <memory>
#include <optional>

#include "actors/replica/replica_rank.hpp"
#include "actors/replica/weights/weight_publisher.hpp"

namespace maestro {

/// Not thread-safe; belongs to the replica's actor. Jobs run one after another on the first rank's device, while the
/// other ranks are idle.
class ReplicaSnapshot {
 public:
  /// Failures go to `replica`. `versions`: weights that generators still read.
  ReplicaSnapshot(const ReplicaSpec& spec, const StepBoundary& mark, caf::actor replica, caf::actor coordinator,
                  std::optional<KeptVersions> versions);
  /// Returns a job that copies the moments `which` from the gradient buffer, where they were gathered.
  [[nodiscard]] ReplicaRank::Job load_gathered_moments(ParameterBuffer which) const;
  /// Returns the last job, which copies everything else and queues it for writing.
  [[nodiscard]] ReplicaRank::Job write() const;

 private:
  struct Capture;
  std::shared_ptr<Capture> capture_;  // shared with the jobs
};

}  // namespace maestro
