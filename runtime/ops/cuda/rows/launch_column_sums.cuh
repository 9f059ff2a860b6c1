// SPDX-License-Identifier: Apache-2.0
// Launches of sums over rows. For kernel sources.
#pragma once

#include "runtime/ops/cuda/products/column_sums.hpp"
#include "runtime/ops/cuda/rows/column_sums.cuh"

namespace maestro::cuda {

template <int V, class Source>
void launch_columns(const Launch& at, const dim3& grid, const ColumnSumCall<Source>& call) {
  launch({"column_sums", grid, column_lanes * column_warps, 0, at.stream}, column_sum_kernel<V, Source>, call);
}

/// Computes into (columns) += the source's column sums over `rows` rows, in a fixed order. `packed`: the source loads
/// column_width columns at a time.
inline constexpr int column_width = 4;
template <class Source>
void add_columns_of(const Launch& at, const Source& source, const Shape& shape, bool packed, float* into) {
  const std::int64_t rows = shape.rows();
  const std::int64_t columns = shape.columns();
  if (rows == 0) return;
  const Workspace::Scope scope(*at.workspace);
  with_flag(packed, [&](auto flag) {
    constexpr int V = decltype(flag)::value ? column_width : 1;
    const ColumnTiles tiles = column_tiles(rows, columns, V, at.multiprocessors);
    const bool direct = tiles.row_blocks == 1;
    const std::size_t count = tiles.row_blocks * static_cast<std::size_t>(columns);
    float* to = direct ? into : at.workspace->take_array<float>(count);
    launch_columns<V>(at, dim3(tiles.column_blocks, tiles.row_blocks),
                      ColumnSumCall<Source>{source, to, rows, tiles.rows_per_block, static_cast<int>(columns), direct});
    if (!direct) add_partial_rows(at, {to, tiles.row_blocks, columns}, into);
  });
}

}  // namespace maestro::cuda
