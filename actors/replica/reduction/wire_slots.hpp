// SPDX-License-Identifier: Apache-2.0
// A member's memory for encoded gradients of a HostExchange: a slot for each shard. The slot of another member's shard
// has this member's part, and later its sum, which arrives after its owner has read the part. The slot of this member's
// shard has its sum.
//
// Plain class; encode_parts() and encode_sum() run on the device's thread.
#pragma once

#include <span>
#include <vector>

#include "runtime/collective/reduction_round.hpp"
#include "runtime/collective/shard_codec.hpp"
#include "runtime/core/aligned_memory.hpp"

namespace maestro {

class WireSlots {
 public:
  /// Creates slots for the shards of `elements` gradients over `members`. Gradients from element `learned` on count,
  /// and stay in f32.
  WireSlots(WireFormats formats, std::size_t elements, std::size_t learned, std::size_t members);

  /// Returns whether sums are encoded, too; else they are not in the slots.
  [[nodiscard]] bool encodes_sums() const { return formats_.sums != GradientWire::f32; }
  /// Returns the codec for parts, or sums, of a shard.
  [[nodiscard]] ShardCodec codec(std::size_t shard, bool sum) const;
  [[nodiscard]] std::size_t offset(std::size_t shard) const { return offsets_[shard]; }
  [[nodiscard]] std::span<std::byte> slot(std::size_t shard) {
    return memory().subspan(offsets_[shard], offsets_[shard + 1] - offsets_[shard]);
  }
  [[nodiscard]] std::span<std::byte> memory() { return {memory_.data(), memory_.size()}; }
  /// Encodes the parts of all shards except `kept`, this member's; returns their error.
  WireError encode_parts(std::span<const float> gradients, std::size_t kept);
  /// Encodes the sum of a shard, and replaces it by the decoded values (WI-1); returns the error.
  WireError encode_sum(std::span<float> sum, std::size_t shard);

 private:
  [[nodiscard]] ShardRange range(std::size_t shard) const { return shard_range(elements_, members_, shard); }

  WireFormats formats_;
  std::size_t elements_;
  std::size_t learned_;
  std::size_t members_;
  std::vector<std::size_t> offsets_;  // by shard, and the end
  AlignedMemory memory_;
};

}  // namespace maestro
