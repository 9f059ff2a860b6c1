// SPDX-License-Identifier: Apache-2.0
// Arguments that cached_attention.cpp passes to the kernel of an instruction set; plain pointers, as in
// attention_kernels.hpp.
#pragma once

#include "runtime/ops/cpu/attention/attention_kernels.hpp"

namespace maestro::cpu {

/// A kv head of a sequence's last N rows, and the query heads that share it. A query is a (row, head) pair.
struct CachedAttentionCall {
  In queries{};  ///< (N, query_stride), from the first query head's first column
  In keys{};     ///< (first + N, key_stride), from the kv head's first column
  In values{};   ///< (first + N, key_stride), from the kv head's first column
  Out out{};     ///< (N, out_stride), from the first query head's first column
  std::int64_t query_stride = 0;
  std::int64_t key_stride = 0;
  std::int64_t out_stride = 0;
  std::int64_t rows = 0;   ///< N
  std::int64_t first = 0;  ///< position of the first row
  std::int64_t shared_by = 1;
  std::int64_t head_size = 1;
  std::int64_t window = 0;             ///< 0: all keys
  const std::int32_t* ends = nullptr;  ///< (N) end of the keys that a row sees; null: its own row is the last
  float scale = 1;
  float softcap = 0;             ///< 0: none
  const float* sinks = nullptr;  ///< (query heads of the kv head), as in AttentionSinks; null: none
  AttentionScratch tiles;
};

struct CachedAttentionKernels {
  void (*forward)(const CachedAttentionCall& call);
};
MAESTRO_KERNELS(CachedAttentionKernels, cached_attention_kernels)
namespace avx512_bf16 {
extern const CachedAttentionKernels cached_attention_kernels;
}

}  // namespace maestro::cpu
