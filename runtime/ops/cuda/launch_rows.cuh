// SPDX-License-Identifier: Apache-2.0
// Launches of pointwise.cuh's kernels. For kernel sources.
#pragma once

#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/rows/pointwise.cuh"

namespace maestro::cuda {

template <class Op, class A, class B, class Out>
void launch_map(const Launch& at, const char* name, const MapCall<A, B, Out>& call, Op op) {
  if (call.count == 0) return;
  const auto fits = [](const auto* memory) {
    return aligned(memory, flat_width, sizeof *memory,
                   access_width<std::remove_cvref_t<decltype(*memory)>, flat_width>);
  };
  const bool packed = fits(call.a) && fits(call.out) && (!Op::takes_two || fits(call.b));
  with_flag(packed, [&](auto flag) {
    constexpr bool Packed = decltype(flag)::value;
    constexpr int tile = flat_threads * (Packed ? flat_width * flat_steps : 2 * flat_steps);
    launch({name, flat_blocks(call.count, tile, at.multiprocessors), flat_threads, 0, at.stream},
           map_kernel<Packed, Op, A, B, Out>, call, op);
  });
}

/// Sets out = op(a).
template <class Op>
void map_one(const Launch& at, const char* name, const Tensor& a, const Tensor& out, Op op = {}) {
  assert(a.elements() == out.elements());
  with_type(a.dtype(), [&](auto from) {
    with_type(out.dtype(), [&](auto to) {
      using A = typename decltype(from)::type;
      using Out = typename decltype(to)::type;
      launch_map(at, name, MapCall<A, A, Out>{a.elements(), a.data<A>(), nullptr, out.data<Out>()}, op);
    });
  });
}

/// Sets out = op(a, b).
template <class Op>
void map_two(const Launch& at, const char* name, const Tensor& a, const Tensor& b, const Tensor& out, Op op = {}) {
  assert(a.elements() == out.elements() && b.elements() == out.elements());
  with_type(a.dtype(), [&](auto left) {
    with_type(b.dtype(), [&](auto right) {
      with_type(out.dtype(), [&](auto to) {
        using A = typename decltype(left)::type;
        using B = typename decltype(right)::type;
        using Out = typename decltype(to)::type;
        launch_map(at, name, MapCall<A, B, Out>{a.elements(), a.data<A>(), b.data<B>(), out.data<Out>()}, op);
      });
    });
  });
}

/// Calls body(row, item) on all rows and items.
template <class Body>
void launch_rows(const Launch& at, const char* name, std::int64_t rows, std::int64_t items, const Body& body) {
  if (rows == 0 || items == 0) return;
  const RowTiles tiles = row_tiles(rows, items, at.multiprocessors);
  launch({name, tiles.blocks, flat_threads, 0, at.stream}, for_rows_kernel<Body>, body, rows, static_cast<int>(items),
         tiles.lanes_log2);
}

}  // namespace maestro::cuda
