// SPDX-License-Identifier: Apache-2.0
// Encodes a shard of the gradients for the wire (GradientWire), and decodes it. Pure; for host memory.
//
// A shard's elements that count stay in f32, after the encoded elements. e4m3 has 4 exponent and 3 mantissa bits, up to
// 448, no infinity (Micikevicius et al. 2022, "FP8 Formats for Deep Learning"); a block of 128 elements is divided by
// its scale, the largest absolute value / 448, and rounded to the nearest, ties to even. A block with an infinity or
// NaN decodes to NaN, so a guard sees the step as it does without encoding.
//
// WI-1 (decoded by all): whoever uses a value that is sent encoded uses the decoded value, its sender included; so all
//       replicas hold the same bits, and results do not depend on who shares a process.
// WI-2 (format by the plan): a shard's format depends only on the job, so both sides know its size before it is sent.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/core/gradient_wire.hpp"

namespace maestro {

/// Stateless, apart from the shard's sizes.
class ShardCodec {
 public:
  static constexpr std::size_t block = 128;  ///< elements with the same scale in e4m3

  /// `encoded`: elements in `format`; `exact`: elements after them in f32.
  ShardCodec(GradientWire format, std::size_t encoded, std::size_t exact)
      : format_(format), encoded_(encoded), exact_(exact) {}

  [[nodiscard]] std::size_t elements() const { return encoded_ + exact_; }
  /// Returns the size of the encoded shard, a multiple of 4.
  [[nodiscard]] std::size_t bytes() const { return exact_offset() + exact_ * sizeof(float); }
  /// Writes bytes() bytes for elements() values; `to` is aligned for floats. Returns the error of the encoded elements.
  WireError encode(std::span<const float> values, std::span<std::byte> to) const;
  /// Writes decoded elements [first, first + values.size()); `first` is divisible by `block`.
  void decode(std::span<const std::byte> from, std::size_t first, std::span<float> values) const;

 private:
  [[nodiscard]] std::size_t scales() const {
    return format_ == GradientWire::e4m3 ? (encoded_ + block - 1) / block : 0;
  }
  [[nodiscard]] std::size_t exact_offset() const;
  /// Decodes elements of the encoded part.
  void decode_encoded(const std::byte* from, std::size_t first, std::span<float> values) const;

  GradientWire format_;
  std::size_t encoded_;
  std::size_t exact_;
};

}  // namespace maestro
