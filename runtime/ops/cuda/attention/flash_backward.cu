// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/flash_attention.cuh"

namespace maestro::cuda {

void flash_attention_backward(const Launch& at, const AttentionBackward& op) {
  const FlashCall call = flash_call(at, op.qkv, op.shape, op.layout, op.queries);
  if (call.rows == 0) return;
  op.qkv.dtype() == DType::bf16 ? run_flash_backward<bfloat16>(call, op) : run_flash_backward<float>(call, op);
}

}  // namespace maestro::cuda
