// SPDX-License-Identifier: Apache-2.0
// The gradients of a rank in memory that the network and other replicas of the process can access: the section's own
// memory, or, if the device computes in memory of its own, pinned host memory that they are copied to and from.
//
// Plain class. copy_to_host() and copy_to_device() run on the device's thread: they only queue the copy, which is
// complete with the next Device::finish().
#pragma once

#include <span>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/pinned_block.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

class GradientStaging {
 public:
  /// `gradients` lie in memory of `ops`; both outlive the staging.
  GradientStaging(const OperatorTable& ops, std::span<float> gradients);

  /// Returns whether there are copies in host memory.
  [[nodiscard]] bool apart() const { return copy_.size() > 0; }
  /// Returns all gradients, in host memory.
  [[nodiscard]] std::span<float> values() const;
  /// Returns the span of values() that corresponds to `part` of the gradients.
  [[nodiscard]] std::span<float> values_of(std::span<const float> part) const;
  /// Copy `part` to values_of(part), and back.
  void copy_to_host(std::span<float> part) const;
  void copy_to_device(std::span<float> part) const;

 private:
  const OperatorTable* ops_;
  std::span<float> gradients_;
  AlignedMemory copy_;
  PinnedBlock pinned_;  // copy_
};

}  // namespace maestro
