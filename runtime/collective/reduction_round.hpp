// SPDX-License-Identifier: Apache-2.0
// Gradient reduction among the replicas of a section, in a fixed order: replica r owns shard r of the flat gradient.
// Every replica sends its part of shard r to r; r adds the parts in the order of replicas 0, 1, 2, ... and sends the
// sum to all. Pure: the actor moves the bytes and reports events.
//
// RD-1 (shards): shards cover the vector without overlap; their bounds depend only on size and replicas.
// RD-2 (replica order): the owner forms the sum of a shard once, in replica order; so all replicas hold the same bits.
// RD-3 (completion): a round is complete when the replica has summed its shard, holds every other shard, and no member
//       still reads data that it sent.
// RD-4 (empty shards): an empty shard (few elements, many replicas) is never sent and never waited for.
// RD-5 (held sum): a sum, or its replacement, is sent when its owner releases it; until then the round stops.
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
/// Returns shard `index` of `replicas` over `elements`, in multiples of 16 elements except for the last (RD-1).
[[nodiscard]] ShardRange shard_range(std::size_t elements, std::size_t replicas, std::size_t index);

/// Not thread-safe; belongs to the replica's actor.
class ReductionRound {
 public:
  /// Starts a round that waits for these numbers of parts of this replica's shard and sums of other shards (RD-4).
  ReductionRound(std::size_t expected_parts, std::size_t expected_sums)
      : expected_parts_(expected_parts), expected_sums_(expected_sums) {}

  /// Records that the local gradient of this round is final.
  void local_ready() { local_ready_ = true; }
  void part_arrived() { ++parts_; }
  void shard_summed() { summed_ = true; }
  void shard_released() { released_ = true; }
  void sum_arrived() { ++sums_; }
  void sums_copied() { copied_ = true; }
  void send_started() { ++sends_pending_; }
  void send_done() { --sends_pending_; }

  /// Returns whether all parts of this replica's shard have arrived and are not added yet.
  [[nodiscard]] bool may_sum() const { return local_ready_ && !summed_ && parts_ == expected_parts_; }
  /// Returns whether the sum is formed and not yet released (RD-5).
  [[nodiscard]] bool holds_sum() const { return summed_ && !released_; }
  /// Returns whether the sums of all other shards have arrived and are not in place yet.
  [[nodiscard]] bool may_copy() const { return released_ && !copied_ && sums_ == expected_sums_; }
  /// Returns whether RD-3 holds.
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
