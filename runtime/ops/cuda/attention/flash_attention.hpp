// SPDX-License-Identifier: Apache-2.0
// Attention over packed sequences by own kernels (FlashAttention-2, Dao 2023): for f32, and where cuDNN has no plan.
//
// FA-1: never holds T x T; beside the arguments only (M, H) f32 of the workspace, backward.
// FA-2: results do not depend on how sequences are packed together and are the same bit for bit from run to run: no
//       sum is made in an order that timing decides.
// Products of bf16 tensors are rounded as operands only and summed in f32; probabilities and their gradients are
// rounded to bf16 before they meet v, k, q and dout. f32 tensors are multiplied in f32.
#pragma once

#include <string>

#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

/// Why the kernels cannot do this shape; empty: they can. Head sizes are 16 to 256 in steps of 8.
[[nodiscard]] std::string flash_refusal(const AttentionShape& shape);

/// As OperatorTable::attention, with tensors and layout.offsets in device memory, 16-byte aligned; layout.positions is
/// not used. Rows are those of qkv. Throws DeviceError for a refused shape.
void flash_attention(const Launch& at, const Tensor& qkv, const AttentionShape& shape, const SequenceLayout& layout,
                     const Tensor& out, const Tensor& lse);
/// As OperatorTable::attention_backward; lse of flash_attention() or of anything else that has natural logarithms.
void flash_attention_backward(const Launch& at, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                              const Tensor& lse, const AttentionShape& shape, const SequenceLayout& layout,
                              const Tensor& dqkv);

}  // namespace maestro::cuda
