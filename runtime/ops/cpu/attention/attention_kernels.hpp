// SPDX-License-Identifier: Apache-2.0
// Arguments that attention.cpp passes to the kernels of an instruction set: plain pointers, so that no part of the
// standard library is compiled with that set's options.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

/// Largest tile edges and vector width; the scratch is sized for them.
inline constexpr std::int64_t attention_query_tile = 64;
inline constexpr std::int64_t attention_key_tile = 64;
inline constexpr std::int64_t attention_padding = 16;

/// A call's tiles in its scratch, for at most T tokens. A product's operands are f32, or words with two bf16
/// (attention_products.hpp), which take half the memory.
struct AttentionScratch {
  float* keys = nullptr;          ///< (T, padded D)
  float* values = nullptr;        ///< (T, padded D); forward only
  float* keys_tiles = nullptr;    ///< [T / key tile][padded D][key tile]
  float* values_tiles = nullptr;  ///< like keys_tiles; backward only
  float* dkeys = nullptr;         ///< (T, padded D) f32; backward only
  float* dvalues = nullptr;       ///< (T, padded D) f32; backward only
  float* query = nullptr;         ///< (query tile, padded D); scaled if f32
  float* query_depth = nullptr;   ///< `query` in depth rows; backward only
  float* result = nullptr;        ///< (query tile, padded D) f32: out, or dq
  float* dout = nullptr;          ///< (query tile, padded D); backward only
  float* dout_depth = nullptr;    ///< `dout` in depth rows; backward only
  float* scores = nullptr;        ///< (query tile, key tile): scores, then probabilities
  float* dscores = nullptr;       ///< (query tile, key tile), then in depth rows; backward only
  float* dscore_rows = nullptr;   ///< (query tile, key tile): `dscores` in rows; backward only
  float* row_max = nullptr;       ///< (query tile); backward: the log-sum-exp
  float* row_sum = nullptr;  ///< (query tile, attention_padding) partial sums; backward: do . o in each row's first
};

/// A kv head of a sequence with `length` tokens, and the query heads that share it. Pointers are to the sequence's
/// first row.
struct AttentionCall {
  const void* qkv = nullptr;   ///< (T, (H + 2G) D)
  void* out = nullptr;         ///< (T, H D); read by the backward pass
  float* lse = nullptr;        ///< (T, H)
  const void* dout = nullptr;  ///< (T, H D), backward only
  void* dqkv = nullptr;        ///< (T, (H + 2G) D), backward only
  std::int64_t length = 0;     ///< T
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_size = 1;
  std::int64_t kv_head = 0;                   ///< index of the kv head
  const std::int64_t* query_tiles = nullptr;  ///< first rows of the tiles of queries
  std::int64_t query_tile_count = 0;
  bool causal = true;
  std::int64_t window = 0;             ///< number of keys that a query sees, with itself; 0: all
  const std::int32_t* ends = nullptr;  ///< (T) end of the keys that a causal query sees; null: its own row is the last
  float scale = 1;                     ///< score factor
  float softcap = 0;                   ///< soft cap for scaled scores; 0: none
  bool bf16 = false;                   ///< storage of all activations
  AttentionScratch tiles;
};

struct AttentionKernels {
  void (*forward)(const AttentionCall& call);
  void (*backward)(const AttentionCall& call);
};
MAESTRO_KERNELS(AttentionKernels, attention_kernels)
/// With bf16 dot products, for bf16 activations only.
namespace avx512_bf16 {
extern const AttentionKernels attention_kernels;
}

}  // namespace maestro::cpu
