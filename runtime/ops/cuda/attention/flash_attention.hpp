// SPDX-License-Identifier: Apache-2.0
// Attention over packed sequences by own kernels (FlashAttention-2, Dao 2023): for f32, and where cuDNN has no plan.
//
// FA-2 (fixed results): results do not depend on how sequences are packed together and are the same bit for bit from
//       run to run: no sum is made in an order that timing decides.
// The kernels never hold T x T numbers; beside the arguments only the backward pass uses memory: (M, H) f32 of the
// workspace.
// Products of bf16 tensors are rounded as operands only and summed in f32; probabilities and their gradients are
// rounded to bf16 before they meet v, k, q and dout. f32 tensors are multiplied in f32.
#pragma once

#include <initializer_list>
#include <string>

#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

/// Why the kernels cannot do this shape; empty: they can. Head sizes are 16 to 256 in steps of 8.
[[nodiscard]] std::string flash_refusal(const AttentionShape& shape);

/// Throws DeviceError for a refused shape, or a tensor that does not begin at a multiple of 16 bytes.
void check_flash(const AttentionShape& shape, std::initializer_list<Tensor> tensors);

/// With tensors and layout.offsets in device memory, 16-byte aligned; layout.positions is not used. Rows are those of
/// qkv. Throws DeviceError for a refused shape.
void flash_attention(const Launch& at, const Attention& op);
/// Takes lse of flash_attention() or of any other forward pass with natural logarithms.
void flash_attention_backward(const Launch& at, const AttentionBackward& op);

}  // namespace maestro::cuda
