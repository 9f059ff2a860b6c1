// SPDX-License-Identifier: Apache-2.0
// The gradients of a rank where the network and other replicas of the process reach them: the section's own memory, or,
// where a device computes in memory of its own, page-locked memory of the processor that they are copied to and from.
//
// Plain class. take_out() and put_back() are work for the device's thread: they only queue, and are done when
// Device::finish() tells.
#pragma once

#include <span>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

class GradientMirror {
 public:
  /// `gradients` lie in memory of `ops`; both outlive the mirror.
  GradientMirror(const OperatorTable& ops, std::span<float> gradients);
  ~GradientMirror();
  GradientMirror(const GradientMirror&) = delete;
  GradientMirror& operator=(const GradientMirror&) = delete;

  /// Whether there is anything to copy.
  [[nodiscard]] bool apart() const { return copy_.size() > 0; }
  /// All of them, for the processor.
  [[nodiscard]] std::span<float> values() const;
  /// What values() has of `part`, which lies in the gradients.
  [[nodiscard]] std::span<float> values_of(std::span<const float> part) const;
  /// values_of(part) = part, and back.
  void take_out(std::span<float> part) const;
  void put_back(std::span<float> part) const;

 private:
  const OperatorTable* ops_;
  std::span<float> gradients_;
  AlignedMemory copy_;
};

}  // namespace maestro
