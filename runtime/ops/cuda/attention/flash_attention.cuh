// SPDX-License-Identifier: Apache-2.0
// Launches of the attention kernels, by dtype and width; see flash_attention.hpp.
#pragma once

#include <cassert>
#include <cmath>

#include "runtime/ops/cuda/attention/flash_attention.hpp"
#include "runtime/ops/cuda/attention/flash_backward.cuh"
#include "runtime/ops/cuda/attention/flash_forward.cuh"

namespace maestro::cuda {

/// Arguments of a call besides its tensors.
struct FlashCall {
  const Launch& at;
  FlashProblem problem;
  std::int64_t rows;  ///< M
  [[nodiscard]] dim3 grid(int own_rows, int heads) const {
    return {static_cast<unsigned>(flash_tiles(rows, problem.sequences, own_rows)), static_cast<unsigned>(heads)};
  }
};

inline FlashCall flash_call(const Launch& at, const Tensor& qkv, const AttentionShape& shape,
                            const SequenceLayout& layout, const QueryPart& queries) {
  check_flash(shape, {qkv});
  assert(qkv.columns() == shape.qkv_columns());
  return {at,
          {.offsets = layout.offsets.data(),
           .ends = layout.ends.empty() ? nullptr : layout.ends.data(),
           .sequences = static_cast<std::int32_t>(layout.sequences()),
           .heads = static_cast<std::int32_t>(shape.heads),
           .kv_heads = static_cast<std::int32_t>(shape.kv_heads),
           .head_size = static_cast<std::int32_t>(shape.head_size),
           .causal = shape.causal,
           .scale = static_cast<float>(shape.score_scale()),
           .softcap = static_cast<float>(shape.softcap),
           .window = shape.window > 0 ? shape.window : most_keys,
           .queries = queries},
          qkv.rows()};
}

/// Shared memory limit of a block on compute capability 8.0, the oldest supported architecture.
inline constexpr std::size_t most_shared_bytes = std::size_t{163} * 1024;

template <class T, int Width, bool Plain>
void launch_flash_forward(const FlashCall& call, const FlashForward<T>& forward) {
  using Geometry = FlashGeometry<T, Width>;
  constexpr std::size_t shared = Geometry::template shared_bytes<Geometry::streamed_forward>(1);
  static_assert(shared <= most_shared_bytes);
  launch({"flash_forward", call.grid(Geometry::own_rows, call.problem.heads), dim3(Geometry::threads), shared,
          call.at.stream},
         flash_forward_kernel<T, Width, Plain>, forward);
}

template <class T, int Width, bool Plain>
void launch_flash_backward(const FlashCall& call, const FlashBackward<T>& backward) {
  using Geometry = FlashGeometry<T, Width>;
  constexpr std::size_t shared = Geometry::template shared_bytes<Geometry::streamed_backward>(2);
  static_assert(shared <= most_shared_bytes);
  const dim3 threads(Geometry::threads);
  launch({"flash_dq", call.grid(Geometry::own_rows, call.problem.heads), threads, shared, call.at.stream},
         flash_dq_kernel<T, Width, Plain>, backward);
  const dim3 grid = call.grid(Geometry::own_rows, call.problem.kv_heads);
  if constexpr (Width <= 128) {
    launch({"flash_dkv", grid, threads, shared, call.at.stream}, flash_dkv_kernel<T, Width, Plain, true, true>,
           backward);
  } else {
    launch({"flash_dk", grid, threads, shared, call.at.stream}, flash_dkv_kernel<T, Width, Plain, true, false>,
           backward);
    launch({"flash_dv", grid, threads, shared, call.at.stream}, flash_dkv_kernel<T, Width, Plain, false, true>,
           backward);
  }
}

template <class T>
void launch_flash_delta(const FlashCall& call, const Tensor& dout, const Tensor& out, float* delta) {
  const std::int64_t rows = call.rows * call.problem.heads;
  constexpr int rows_of_block = delta_threads / warp_size;
  const FlashDelta<T> arguments{dout.data<T>(), out.data<T>(), delta, rows, call.problem.head_size};
  launch({"flash_delta", dim3(static_cast<unsigned>((rows + rows_of_block - 1) / rows_of_block)), dim3(delta_threads),
          0, call.at.stream},
         flash_delta_kernel<T>, arguments);
}

/// Calls `run` with types for the narrowest width that fits the head size and for whether the problem is plain.
template <class Run>
void with_flash_kernel(const FlashProblem& problem, Run run) {
  const auto with_width = [&](auto plain) {
    if (problem.head_size <= 64) return run(std::integral_constant<int, 64>{}, plain);
    if (problem.head_size <= 128) return run(std::integral_constant<int, 128>{}, plain);
    run(std::integral_constant<int, 256>{}, plain);
  };
  problem.plain() ? with_width(std::true_type{}) : with_width(std::false_type{});
}

template <class T>
void run_flash_forward(const FlashCall& call, const Attention& op) {
  const FlashForward<T> forward{call.problem, op.qkv.data<T>(), op.out.data<T>(), op.lse.data<float>()};
  with_flash_kernel(call.problem,
                    [&](auto width, auto plain) { launch_flash_forward<T, width, plain>(call, forward); });
}

template <class T>
void run_flash_backward(const FlashCall& call, const AttentionBackward& op) {
  const Workspace::Scope scope(*call.at.workspace);
  auto* delta = call.at.workspace->take_array<float>(static_cast<std::size_t>(call.rows * call.problem.heads));
  launch_flash_delta<T>(call, op.dout, op.out, delta);
  const FlashBackward<T> backward{call.problem, op.qkv.data<T>(), op.dout.data<T>(), op.lse.data<float>(),
                                  delta,        op.dqkv.data<T>()};
  with_flash_kernel(call.problem,
                    [&](auto width, auto plain) { launch_flash_backward<T, width, plain>(call, backward); });
}

}  // namespace maestro::cuda
