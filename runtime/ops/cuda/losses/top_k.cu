// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/losses/top_k.cuh"

#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

void top_k(const Launch& at, const Tensor& logits, const Tensor& values, const Tensor& indices, std::int64_t columns) {
  const auto k = static_cast<int>(values.columns());
  const std::int64_t of = columns == 0 ? logits.columns() : columns;
  assert(k >= 1 && k <= most_k && k <= of && of <= logits.columns() && values.rows() == logits.rows());
  if (logits.rows() == 0) return;
  with_type(logits.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    launch({"top_k", static_cast<unsigned>(logits.rows()), select_threads, 0, at.stream}, top_k_kernel<T>,
           TopKCall<T>{logits.data<T>(), values.data<float>(), indices.data<std::int32_t>(), logits.columns(),
                       static_cast<int>(of), k});
  });
}

}  // namespace maestro::cuda
