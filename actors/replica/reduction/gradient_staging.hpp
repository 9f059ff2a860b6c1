// SPDX-License-Identifier: Apache-2.0
// A rank's gradients in memory that the network and other replicas of the process can access: the section's memory, or,
// if it is device memory, pinned host memory with copies in both directions.
//
// Plain class. copy_to_host() and copy_to_device() run on the device's thread and only queue the copy, which is
// complete at the next Device::finish().
#pragma once

#include <span>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/pinned_block.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

class GradientStaging {
 public:
  /// `gradients` are in the memory of `ops`; both outlive the staging.
  GradientStaging(const OperatorTable& ops, std::span<float> gradients);

  /// Returns whether values() is a copy in host memory.
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
  PinnedBlock pinned_;  // pins copy_
};

}  // namespace maestro
