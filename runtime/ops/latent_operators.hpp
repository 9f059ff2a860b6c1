// SPDX-License-Identifier: Apache-2.0
// The heads of latent attention (DeepSeek-V2, 2024, section 2.1), as operators.hpp. The heads' keys and
// values are products of one latent; a part of the keys turns by their position, and is the same in all heads.
#pragma once

#include <cstdint>

#include "runtime/core/tensor.hpp"

namespace maestro {

struct LatentShape {
  std::int64_t heads = 1;       ///< H
  std::int64_t head_size = 1;   ///< D, columns of a query or key: [nope | rope]
  std::int64_t rope_size = 0;   ///< P, the last columns of them, which turn
  std::int64_t value_size = 1;  ///< V, at most D
  bool interleaved = false;     ///< columns 2 i and 2 i + 1 of rope turn together; false: i and i + P / 2
  [[nodiscard]] std::int64_t query_columns() const { return heads * head_size; }
  /// Returns the columns of all heads' [nope | value].
  [[nodiscard]] std::int64_t key_columns() const { return heads * (head_size - rope_size + value_size); }
  bool operator==(const LatentShape&) const = default;
};

/// Lays out heads for Attention, whose rotation turns columns i and i + P / 2, from a head's first on: queries and keys
/// become [rope | nope], rope with its first columns of pairs before the second ones, which changes no score. Values
/// are filled up with zeros to D columns.
struct LatentHeads {
  Tensor queries{};  ///< (M, H D) act, heads of [nope | rope]
  Tensor keys{};     ///< (M, H (D - P + V)) act, heads of [nope | value]
  Tensor rope{};     ///< (M, P) act
  LatentShape shape{};
  Tensor qkv{};  ///< (M, 3 H D) act
};

/// Gradients of LatentHeads.
struct LatentHeadsBackward {
  Tensor dqkv{};  ///< (M, 3 H D) act
  LatentShape shape{};
  Tensor dqueries{};  ///< overwritten, as the next two
  Tensor dkeys{};
  Tensor drope{};  ///< sums over heads, in f32 in their order
};

}  // namespace maestro
