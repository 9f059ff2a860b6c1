// SPDX-License-Identifier: Apache-2.0
// The gradients of a rank where the network and other replicas of the process reach them: the section's own memory, or,
// where a device computes in memory of its own, pinned host memory that they are copied to and from.
//
// Plain class. copy_to_host() and copy_to_device() are work for the device's thread: they only queue, and are done when
// Device::finish() tells.
#pragma once

#include <span>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

class GradientStaging {
 public:
  /// `gradients` lie in memory of `ops`; both outlive the mirror.
  GradientStaging(const OperatorTable& ops, std::span<float> gradients);
  ~GradientStaging();
  GradientStaging(const GradientStaging&) = delete;
  GradientStaging& operator=(const GradientStaging&) = delete;

  /// Whether there is anything to copy.
  [[nodiscard]] bool apart() const { return copy_.size() > 0; }
  /// All of them, for the CPU.
  [[nodiscard]] std::span<float> values() const;
  /// What values() has of `part`, which lies in the gradients.
  [[nodiscard]] std::span<float> values_of(std::span<const float> part) const;
  /// values_of(part) = part, and back.
  void copy_to_host(std::span<float> part) const;
  void copy_to_device(std::span<float> part) const;

 private:
  const OperatorTable* ops_;
  std::span<float> gradients_;
  AlignedMemory copy_;
};

}  // namespace maestro
