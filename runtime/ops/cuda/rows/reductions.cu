// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/rows/launch_column_sums.cuh"
#include "runtime/ops/cuda/rows/squares.cuh"

namespace maestro::cuda {

void add_partial_rows(const Launch& at, const PartialRows& partial, float* into) {
  if (partial.rows == 0 || partial.columns == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_divide(partial.columns, column_lanes));
  const auto columns = static_cast<int>(partial.columns);
  launch_columns<1>(
      at, dim3(blocks),
      ColumnSumCall<MatrixRows<float>>{{partial.values, columns}, into, partial.rows, partial.rows, columns, true});
}

void add_column_sums(const Launch& at, const Tensor& values, const Tensor& into) {
  const std::int64_t columns = values.columns();
  assert(into.elements() == columns);
  with_type(values.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    add_columns_of(at, MatrixRows<T>{values.data<T>(), static_cast<int>(columns)}, Shape{values.rows(), columns},
                   packs_fit(values, columns, column_width), into.data<float>());
  });
}

void sum_of_squares(const Launch& at, const float* values, std::int64_t count, double* sum, bool accumulate) {
  const Workspace::Scope scope(*at.workspace);
  const std::int64_t tile = std::int64_t{flat_threads} * square_width * 4;
  const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>(ceil_divide(count, tile), 1, square_blocks));
  auto* of_blocks = at.workspace->take_array<double>(blocks);
  launch({"sum_of_squares", blocks, flat_threads, 0, at.stream}, square_kernel, values, count, of_blocks);
  launch({"sum_of_squares", 1, flat_threads, 0, at.stream}, square_total_kernel, of_blocks, static_cast<int>(blocks),
         sum, accumulate);
}

}  // namespace maestro::cuda
