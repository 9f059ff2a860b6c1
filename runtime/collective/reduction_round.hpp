// SPDX-License-Identifier: Apache-2.0
// Gradient reduction among the replicas of a section, in a fixed order: replica r owns shard r of the flat gradient.
// Every replica sends its part of shard r to r; r adds the parts in the order of replicas 0, 1, 2, ... and sends the
// sum to all. Pure: the actor moves the bytes and reports what has happened.
//
// SR-1: shards cover the vector without overlap; their bounds depend only on size and replicas.
// SR-2: the sum of a shard is formed once, by its owner, in replica order; so all replicas hold the same bits.
// SR-3: a round is complete when the replica has summed its shard, holds every other shard, and nothing it sent is
//       still being read.
// SR-4: an empty shard (few elements, many replicas) is never sent and never waited for.
// SR-5: a sum, or what its owner makes of it, is sent when it is released; until then the round does not go on.
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
class ReductionRound {
 public:
  /// What this replica waits for: parts of its own shard, and sums of the others' shards (SR-4).
  ReductionRound(std::size_t expected_parts, std::size_t expected_sums)
      : expected_parts_(expected_parts), expected_sums_(expected_sums) {}

  /// The local gradient of this round is final.
  void local_ready() { local_ready_ = true; }
  void part_arrived() { ++parts_; }
  void shard_summed() { summed_ = true; }
  void shard_released() { released_ = true; }
  void sum_arrived() { ++sums_; }
  void sums_copied() { copied_ = true; }
  void send_started() { ++sends_pending_; }
  void send_done() { --sends_pending_; }

  /// All parts of the own shard are here and not yet added.
  [[nodiscard]] bool may_sum() const { return local_ready_ && !summed_ && parts_ == expected_parts_; }
  /// SR-5: the sum is here and not yet released.
  [[nodiscard]] bool holds_sum() const { return summed_ && !released_; }
  /// The sums of all other shards are here and not yet in place.
  [[nodiscard]] bool may_copy() const { return released_ && !copied_ && sums_ == expected_sums_; }
  /// SR-3.
  [[nodiscard]] bool complete() const { return copied_ && sends_pending_ == 0; }

 private:
  std::size_t expected_parts_;
  std::size_t expected_sums_;
  bool local_ready_ = false;
  bool summed_ = false;
  bool released_ = false;
  bool copied_ = false;
  std::size_t parts_ = 0;
  std::size_t sums_ = 0;
  std::size_t sends_pending_ = 0;
};

}  // namespace maestro
