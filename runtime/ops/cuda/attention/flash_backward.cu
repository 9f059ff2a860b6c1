// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/flash_attention.cuh"

namespace maestro::cuda {

void flash_attention_backward(const Launch& at, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                              const Tensor& lse, const AttentionShape& shape, const SequenceLayout& layout,
                              const Tensor& dqkv) {
  const FlashCall call = flash_call(at, qkv, shape, layout);
  if (call.rows == 0) return;
  if (qkv.dtype() == DType::bf16) return run_flash_backward<bfloat16>(call, dout, qkv, out, lse, dqkv);
  run_flash_backward<float>(call, dout, qkv, out, lse, dqkv);
}

}  // namespace maestro::cuda
