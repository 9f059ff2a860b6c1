// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/cudnn_sequences.hpp"

#include "runtime/ops/cuda/cuda_language.hpp"

namespace maestro::cuda {
namespace {

constexpr int threads = 128;

struct RaggedArguments {
  const std::int32_t* offsets;
  std::int64_t sequences;
  std::int64_t batch;
  RaggedColumns columns;
  RaggedArrays arrays;
};

__global__ void ragged_arrays_kernel(RaggedArguments p) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i > p.batch) return;
  const std::int64_t begin = p.offsets[i < p.sequences ? i : p.sequences];
  p.arrays.qkv[i] = begin * p.columns.qkv;
  p.arrays.out[i] = begin * p.columns.out;
  p.arrays.stats[i] = begin * p.columns.stats;
  if (i == p.batch) return;
  p.arrays.lengths[i] = i < p.sequences ? p.offsets[i + 1] - p.offsets[i] : 0;
}

}  // namespace

void ragged_arrays(const Launch& at, const std::int32_t* offsets, std::int64_t sequences, std::int64_t batch,
                   const RaggedColumns& columns, const RaggedArrays& arrays) {
  const RaggedArguments arguments{offsets, sequences, batch, columns, arrays};
  const auto blocks = static_cast<unsigned>(batch / threads + 1);
  launch({"ragged_arrays", dim3(blocks), dim3(threads), 0, at.stream}, ragged_arrays_kernel, arguments);
}

}  // namespace maestro::cuda
