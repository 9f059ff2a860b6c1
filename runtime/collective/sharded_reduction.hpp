// Gradient reduction among the replicas of a section, in a fixed order: replica r owns shard r of the flat gradient.
// Every replica sends its part of shard r to r; r adds the parts in the order of replicas 0, 1, 2, ... and sends the
// sum to all. Pure: the actor moves the bytes and reports what has happened.
//
// SR-1: shards cover the vector without overlap; their bounds depend only on size and replicas.
// SR-2: the sum of a shard is formed once, by its owner, in replica order; so all replicas hold the same bits.
// SR-3: a round is complete when the replica has summed its shard, holds every other shard, and nothing it sent is
//       still being read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

struct ShardRange {
  std::size_t first = 0;  ///< elements
  std::size_t count = 0;
};
/// Shard `index` of `replicas` over `elements`; multiples of 16 elements but for the last (SR-1).
[[nodiscard]] ShardRange shard_range(std::size_t elements, std::size_t replicas, std::size_t index);

/// Not thread-safe; belongs to the replica's actor.
class ShardedReduction {
 public:
  ShardedReduction(std::size_t replicas, ReplicaIndex self) : replicas_(replicas), self_(self.value()) { reset(); }

  /// The local gradient of this round is final: sends may begin (`sends` in all: parts and sums).
  void local_ready() { local_ready_ = true; }
  void contribution_arrived() { ++contributions_; }
  void shard_summed() { summed_ = true; }
  void shard_arrived() { ++shards_; }
  void send_started() { ++sends_pending_; }
  void send_done() { --sends_pending_; }

  /// All parts of the own shard are here and not yet added.
  [[nodiscard]] bool may_sum() const { return local_ready_ && !summed_ && contributions_ == replicas_ - 1; }
  /// SR-3.
  [[nodiscard]] bool complete() const { return summed_ && shards_ == replicas_ - 1 && sends_pending_ == 0; }
  /// Begins the next round.
  void reset() {
    local_ready_ = summed_ = false;
    contributions_ = shards_ = sends_pending_ = 0;
  }
  [[nodiscard]] std::size_t replicas() const { return replicas_; }
  [[nodiscard]] std::size_t self() const { return self_; }

 private:
  std::size_t replicas_;
  std::size_t self_;
  bool local_ready_ = false;
  bool summed_ = false;
  std::size_t contributions_ = 0;
  std::size_t shards_ = 0;
  std::size_t sends_pending_ = 0;
};

}  // namespace maestro
