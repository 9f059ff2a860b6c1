// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/rows/rows_by_key.cuh"

#include <bit>
#include <utility>

#include "runtime/ops/cuda/launch_rows.cuh"
#include "runtime/ops/cuda/rows/rows_by_key.hpp"

namespace maestro::cuda {

namespace {

/// Returns the rows in key order, rows with equal keys in their original order; in the workspace.
const KeyedRow* sorted_rows(const Launch& at, const std::int32_t* keys, int count, std::uint32_t without) {
  const auto tiles = static_cast<unsigned>(ceil_divide(count, sort_tile));
  const auto entries = static_cast<std::size_t>(tiles) * digits;
  auto* rows = at.workspace->take_array<KeyedRow>(static_cast<std::size_t>(count));
  auto* other = at.workspace->take_array<KeyedRow>(static_cast<std::size_t>(count));
  auto* counts = at.workspace->take_array<int>(entries);
  launch_rows(at, "keyed_rows", count, 1, KeyedRowsMade{keys, rows, without});
  for (int shift = 0; shift < static_cast<int>(std::bit_width(without)); shift += digit_bits) {
    launch({"sort_rows_count", tiles, sort_tile, 0, at.stream}, digit_count_kernel, rows, count, shift, counts);
    launch({"sort_rows_scan", 1, scan_threads, 0, at.stream}, scan_kernel, counts, static_cast<int>(entries));
    launch({"sort_rows_move", tiles, sort_tile, 0, at.stream}, digit_move_kernel, rows, count, shift, counts, other);
    std::swap(rows, other);
  }
  return rows;
}

template <int V, class From, class To>
void launch_runs(const Launch& at, const RunCall<From, To>& call) {
  const dim3 grid(static_cast<unsigned>(ceil_divide(call.count, run_chunk)),
                  static_cast<unsigned>(ceil_divide(call.columns, run_threads * V)));
  launch({"run_sums", grid, run_threads, 0, at.stream}, run_sum_kernel<V, From, To>, call);
  launch({"long_run_sums", grid, run_threads, 0, at.stream}, long_run_kernel<V, From, To>, call);
}

}  // namespace

void add_rows_by_key(const Launch& at, const Tensor& values, const std::int32_t* keys, const Tensor& to, float scale) {
  const std::int64_t columns = values.columns();
  const auto count = static_cast<int>(values.rows());
  if (count == 0 || columns == 0) return;
  const Workspace::Scope scope(*at.workspace);
  const auto without = static_cast<std::uint32_t>(to.rows());
  const KeyedRow* rows = sorted_rows(at, keys, count, without);
  const auto partial = static_cast<std::size_t>(ceil_divide(count, run_chunk) * columns);
  auto* heads = at.workspace->take_array<float>(partial);
  auto* tails = at.workspace->take_array<float>(partial);
  constexpr int width = 4;
  with_type(values.dtype(), [&](auto source) {
    with_type(to.dtype(), [&](auto target) {
      with_flag(packs_fit(values, columns, width) && packs_fit(to, columns, width), [&](auto flag) {
        using From = typename decltype(source)::type;
        using To = typename decltype(target)::type;
        constexpr int V = decltype(flag)::value ? width : 1;
        launch_runs<V>(at, RunCall<From, To>{rows, values.data<From>(), to.data<To>(), heads, tails, count,
                                             static_cast<int>(columns), without, scale});
      });
    });
  });
}

}  // namespace maestro::cuda
