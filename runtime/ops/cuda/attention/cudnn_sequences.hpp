// SPDX-License-Identifier: Apache-2.0
// Lengths and offsets of packed sequences as cuDNN's ragged tensors want them, made on the device.
#pragma once

#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

/// Device arrays for a batch of B sequences: lengths (B) in rows, and offsets (B + 1) in elements of tensors with so
/// many columns per row.
struct RaggedArrays {
  std::int32_t* lengths = nullptr;
  std::int64_t* qkv = nullptr;
  std::int64_t* out = nullptr;
  std::int64_t* stats = nullptr;
};
struct RaggedColumns {
  std::int64_t qkv = 0;
  std::int64_t out = 0;
  std::int64_t stats = 0;
};
/// Makes the arrays from `offsets` (S + 1) in device memory, S <= batch; sequences from S on are empty and begin at the
/// end.
void ragged_arrays(const Launch& at, const std::int32_t* offsets, std::int64_t sequences, std::int64_t batch,
                   const RaggedColumns& columns, const RaggedArrays& arrays);

}  // namespace maestro::cuda
