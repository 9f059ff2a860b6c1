// SPDX-License-Identifier: Apache-2.0
// A chunk of the gated delta rule (DeltaRule) for the value heads of a key head. With c the running sum of g, e = e^c,
// D_ij = e^(c_i - c_j) for i >= j, and the rows of a chunk as matrices:
//   A = strictly_lower(diag(beta) K K^T D)     N = (I + A)^-1 (beta (V - e K S))     P = lower(Q K^T D)
//   out = e Q S + P N                          S+ = e_last S + (e_last / e K)^T N
// after Yang et al. 2024, section 3.3. Storage of activations is f32 or bf16, arithmetic is f32.
#pragma once

#include "runtime/core/delta_shape.hpp"
#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

/// Rows in tiles are padded with zeros to a multiple of delta_padding columns.
inline constexpr std::int64_t delta_padding = 16;

/// Working memory of a call: dk and dv are padded, and tiles of a chunk's rows have delta_chunk of them.
struct DeltaTiles {
  std::int64_t key_row = 0;                                     ///< dk, padded
  std::int64_t value_row = 0;                                   ///< dv, padded
  float *q, *k, *weighted;                                      ///< (chunk, dk)
  float* k_transposed;                                          ///< (dk, chunk)
  float *kk, *qk, *a, *p;                                       ///< (chunk, chunk)
  float *v, *n, *out;                                           ///< (chunk, dv)
  float *lengths_q, *lengths_k, *beta, *g, *c, *e, *until_end;  ///< (chunk)
  float* state;  ///< (value heads of a key head, dk, dv), kept by callers
  // backward only
  float *dout, *dr, *dn;                        ///< (chunk, dv)
  float* n_transposed;                          ///< (dv, chunk)
  float* state_transposed;                      ///< (dv, dk)
  float *dq, *dk, *by_query, *by_key, *by_end;  ///< (chunk, dk)
  float *dp, *h;                                ///< (chunk, chunk)
  float *dc, *dbeta;                            ///< (chunk)
  float* dstate;                                ///< (value heads of a key head, dk, dv), kept by callers
};

/// Rows of a chunk, whose first elements the pointers are.
struct DeltaChunk {
  DeltaShape shape;
  std::int64_t key_head = 0;
  std::int64_t rows = 0;
  In qkv{};
  In gates{};
  const float* a_log = nullptr;    ///< (Hv)
  const float* dt_bias = nullptr;  ///< (Hv)
};

struct DeltaChunkBackward {
  DeltaChunk chunk;
  In dout{};
  Out dqkv{};
  Out dgates{};
  float* da_log = nullptr;    ///< (Hv), accumulated; null: frozen
  float* ddt_bias = nullptr;  ///< (Hv), accumulated; null: frozen
};

struct DeltaKernels {
  /// Computes out and replaces the state.
  void (*forward)(const DeltaChunk& chunk, const DeltaTiles& tiles, Out out);
  /// Computes gradients from the state before the chunk and dstate, the gradient of the state after it, which the
  /// gradient of the state before it replaces.
  void (*backward)(const DeltaChunkBackward& chunk, const DeltaTiles& tiles);
};
MAESTRO_KERNELS(DeltaKernels, delta_kernels)

}  // namespace maestro::cpu
