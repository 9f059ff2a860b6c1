// SPDX-License-Identifier: Apache-2.0
// Attention over packed sequences by maestro's kernels (FlashAttention-2, Dao 2023): for f32, and if cuDNN lacks a
// plan.
//
// FA-2 (fixed results): results do not depend on how sequences are packed together and are bitwise equal from run to
//       run: the order of every sum is fixed.
//
// The kernels never hold T x T numbers; only the backward pass uses memory besides its arguments: (M, H) f32 of the
// workspace. bf16 tensors enter products as they are, and the products are summed in f32; probabilities and their
// gradients are rounded to bf16 before they are multiplied with v, k, q and dout. f32 tensors are multiplied in f32.
#pragma once

#include <initializer_list>
#include <string>

#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

/// Returns the reason why the kernels cannot compute this shape; empty: they can. Head sizes are 16 to 256 in steps of
/// 8.
[[nodiscard]] std::string flash_refusal(const AttentionShape& shape);

/// Throws DeviceError for a refused shape, or for a tensor that is not aligned to 16 bytes.
void check_flash(const AttentionShape& shape, std::initializer_list<Tensor> tensors);

/// Computes the attention of tensors, layout.offsets and layout.ends in device memory, tensors 16-byte aligned;
/// layout.positions is not used. Works on the rows of qkv. Throws DeviceError for a refused shape.
void flash_attention(const Launch& at, const Attention& op);
/// Computes the gradients from the lse of flash_attention() or of any other forward pass with natural logarithms.
void flash_attention_backward(const Launch& at, const AttentionBackward& op);

}  // namespace maestro::cuda
