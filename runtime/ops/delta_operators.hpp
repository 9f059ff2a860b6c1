// SPDX-License-Identifier: Apache-2.0
// The gated delta rule over packed samples (Yang et al. 2024, "Gated Delta Networks"), as operators.hpp: Hk key heads
// of dk columns, Hv value heads of dv (DeltaShape). Values besides act are f32, and so is all arithmetic.
//
// DR-1 (packed = alone): results and gradients of a sample's rows have the same bits whatever is packed with them; also
//       CausalConv's.
// DR-2 (chunks): rows are taken in chunks of delta_chunk that begin at a sample's first row; the last is shorter.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/core/delta_shape.hpp"
#include "runtime/core/tensor.hpp"
#include "runtime/ops/sequence_layout.hpp"

namespace maestro {

inline constexpr std::int64_t delta_chunk = 64;

/// Returns the place among all states of the state before a sample's first chunk, its other chunks' states being next
/// to it; for `first` = M and `sample` = S, the number of places. It depends on M and S alone.
[[nodiscard]] constexpr std::int64_t delta_state_place(std::int64_t first, std::int64_t sample) {
  return first / delta_chunk + sample;
}

/// For each value head, with q = q' / (|q'| sqrt(dk)) and k = k' / |k'| (|x|^2 = sum x^2 + 1e-6), beta = sigmoid(b) and
/// g = -exp(a_log) softplus(a + dt_bias), from S = 0 (dk, dv) before a sample's first row:
///   S = e^g S;  S = S + k (beta (v - S^T k))^T;  out = S^T q.
struct DeltaRule {
  Tensor qkv{};      ///< (M, 2 Hk dk + Hv dv) act = [q' | k' | v]
  Tensor gates{};    ///< (M, 2 Hv) act = [b | a]
  Tensor a_log{};    ///< (Hv) f32
  Tensor dt_bias{};  ///< (Hv) f32
  DeltaShape shape{};
  SequenceLayout layout{};
  Tensor out{};  ///< (M, Hv dv) act
  Tensor
      states{};  ///< (delta_state_place(M, S), Hv dk dv) f32: S before each chunk, for the backward pass; or undefined
};

/// Gradients of DeltaRule: the same sums, over chunks from the last to the first.
struct DeltaRuleBackward {
  Tensor dout{};  ///< (M, Hv dv) act
  Tensor qkv{};
  Tensor gates{};
  Tensor a_log{};
  Tensor dt_bias{};
  Tensor states{};
  DeltaShape shape{};
  SequenceLayout layout{};
  Tensor dqkv{};      ///< qkv's shape, overwritten
  Tensor dgates{};    ///< gates' shape, overwritten
  Tensor da_log{};    ///< (Hv) f32, accumulated in row order of samples; or undefined: frozen
  Tensor ddt_bias{};  ///< (Hv) f32, accumulated; or undefined: frozen
};

/// DeltaRule of a sequence's new rows, for text generation; no gradient. With `sequences`, each new row continues
/// another sequence, and its bits do not depend on the other rows.
struct CachedDelta {
  Tensor qkv{};    ///< (R, 2 Hk dk + Hv dv) act, for rows first to first + R - 1 of the sequence
  Tensor gates{};  ///< (R, 2 Hv) act
  Tensor a_log{};
  Tensor dt_bias{};
  DeltaShape shape{};
  Tensor state{};          ///< (1, Hv dk dv) f32, read unless first = 0, and written; with sequences, all states
  std::int64_t first = 0;  ///< rows of the sequence so far
  Tensor out{};            ///< (R, Hv dv) act
  /// The R rows' sequences, all different, in memory() of the table; `begin` is a state's row. Then `first` is 0.
  std::span<const CachedSequence> sequences{};
};

}  // namespace maestro
