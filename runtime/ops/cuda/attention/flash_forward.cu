// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/flash_attention.cuh"

namespace maestro::cuda {

void flash_attention(const Launch& at, const Attention& op) {
  const FlashCall call = flash_call(at, op.qkv, op.shape, op.layout, op.queries);
  if (call.rows == 0) return;
  op.qkv.dtype() == DType::bf16 ? run_flash_forward<bfloat16>(call, op) : run_flash_forward<float>(call, op);
}

}  // namespace maestro::cuda
