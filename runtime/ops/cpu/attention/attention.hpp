// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention over packed variable-length sequences, blocked so that T x T scores are never held
// (FlashAttention-2, Dao 2023: online softmax forward, recomputation from the log-sum-exp backward).
//
// Formulas, per sequence and query head h, with kv head g = h / (H / G):
//   s_ij = scale q_i . k_j, or with a soft cap c tanh(s_ij / c), where j <= i when causal, or j < end_i with ends, and
//   j > i - window with a window,
//   p = softmax(s), o_i = sum_j p_ij v_j, lse_i = log sum_j exp(s_ij)
//   dv_j = sum_i p_ij do_i, ds_ij = p_ij (do_i . v_j - do_i . o_i), with a soft cap times 1 - (s_ij / c)^2
//   dq_i = scale sum_j ds_ij k_j, dk_j = scale sum_i ds_ij q_i
// Key tiles that no query of a tile sees are skipped: with a window the cost is linear in it.
// Storage is f32 or bf16, arithmetic is f32; with native products of bf16, p and ds are rounded to bf16 before they are
// multiplied, and sums are f32. Results do not depend on how sequences are packed together and are bitwise equal from
// run to run on the same instruction set.
#pragma once

#include "runtime/ops/cpu/attention/cached_attention.hpp"
#include "runtime/ops/cpu/isa.hpp"
#include "runtime/ops/cpu/scratch.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro::cpu {

struct AttentionKernels;

/// M = 0 is allowed; every D >= 1 works, multiples of 16 are fast.
struct AttentionTensors {
  Tensor qkv;  ///< (M, (H + 2G) D) act
  Tensor out;  ///< (M, H D) act
  Tensor lse;  ///< (M, H) f32
};
struct AttentionGradients {
  Tensor dout;  ///< (M, H D) act
  Tensor dqkv;  ///< (M, (H + 2G) D) act
};

/// Packed sequences, and the rows among them that are queries.
struct PackedQueries {
  SequenceLayout layout;
  QueryPart queries = {};
};

/// Thread-safe. Scratch grows linearly with the longest sequence of a call. `scratch` must outlive this.
class AttentionEngine {
 public:
  /// Requires a CPU with bf16 dot products for Bf16Products::native.
  AttentionEngine(Isa isa, Bf16Products bf16, ScratchPool& scratch);
  /// Writes out and lse, as Attention states.
  void forward(const AttentionTensors& tensors, const AttentionShape& shape, const PackedQueries& packed) const;
  /// Writes dqkv, as AttentionBackward states, from dout and the results of forward() in `tensors`.
  void backward(const AttentionTensors& tensors, const AttentionGradients& gradients, const AttentionShape& shape,
                const PackedQueries& packed) const;
  /// Runs attention to a sequence's cache.
  void run(const CachedAttention& op) const { cached_attention(isa_, bf16_, *scratch_, op); }

 private:
  [[nodiscard]] const AttentionKernels& kernels_for(const Tensor& qkv) const;

  Isa isa_;
  Bf16Products bf16_;
  const AttentionKernels* kernels_;
  const AttentionKernels* bf16_kernels_;
  ScratchPool* scratch_;
};

}  // namespace maestro::cpu
