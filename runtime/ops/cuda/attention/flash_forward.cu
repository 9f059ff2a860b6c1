// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/flash_attention.cuh"

namespace maestro::cuda {

void flash_attention(const Launch& at, const Tensor& qkv, const AttentionShape& shape, const SequenceLayout& layout,
                     const Tensor& out, const Tensor& lse) {
  const FlashCall call = flash_call(at, qkv, shape, layout);
  if (call.rows == 0) return;
  if (qkv.dtype() == DType::bf16) return run_flash_forward<bfloat16>(call, qkv, out, lse);
  run_flash_forward<float>(call, qkv, out, lse);
}

}  // namespace maestro::cuda
