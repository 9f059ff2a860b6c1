// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/rows/reductions.cuh"

#include "runtime/ops/cuda/products/column_sums.hpp"

namespace maestro::cuda {

namespace {

constexpr int column_width = 4;

template <int V, class T>
void launch_columns(const Launch& at, const dim3& grid, const ColumnSumCall<T>& call) {
  launch({"column_sums", grid, column_lanes * column_warps, 0, at.stream}, column_sum_kernel<V, T>, call);
}

}  // namespace

void add_partial_rows(const Launch& at, const PartialRows& partial, float* into) {
  if (partial.rows == 0 || partial.columns == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_divide(partial.columns, column_lanes));
  const auto columns = static_cast<int>(partial.columns);
  launch_columns<1>(at, dim3(blocks),
                    ColumnSumCall<float>{partial.values, into, partial.rows, partial.rows, columns, true});
}

void add_column_sums(const Launch& at, const Tensor& values, const Tensor& into) {
  const std::int64_t columns = values.columns();
  assert(into.elements() == columns);
  if (values.rows() == 0) return;
  const Workspace::Scope scope(*at.workspace);
  with_type(values.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    with_flag(packs_fit(values, columns, column_width), [&](auto packed) {
      constexpr int V = decltype(packed)::value ? column_width : 1;
      const ColumnTiles tiles = column_tiles(values.rows(), columns, V, at.multiprocessors);
      const std::size_t count = tiles.row_blocks * static_cast<std::size_t>(columns);
      const bool direct = tiles.row_blocks == 1;
      float* to = direct ? into.data<float>() : at.workspace->take_array<float>(count);
      launch_columns<V>(at, dim3(tiles.column_blocks, tiles.row_blocks),
                        ColumnSumCall<T>{values.data<T>(), to, values.rows(), tiles.rows_per_block,
                                         static_cast<int>(columns), direct});
      if (!direct) add_partial_rows(at, {to, tiles.row_blocks, columns}, into.data<float>());
    });
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
