// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/experts/routing.cuh"

#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/launch_rows.cuh"

namespace maestro::cuda {

void route(const Launch& at, const Route& op) {
  const std::int64_t rows = op.logits.rows(), experts = op.logits.columns();
  const Workspace::Scope scope(*at.workspace);
  const float* scores = op.logits.data<float>();
  if (op.options.kind == RouterKind::sigmoid && rows > 0) {
    auto* own = at.workspace->take_array<float>(static_cast<std::size_t>(rows * experts));
    const float* bias = op.bias.defined() ? op.bias.data<float>() : nullptr;
    launch_rows(at, "router_scores", rows, experts, RouterScores{scores, bias, own, static_cast<int>(experts)});
    scores = own;
  }
  launch_rows(at, "route", rows, 1,
              RoutedTokens{element::router_row(op.options, experts, op.experts.columns()), op.logits.data<float>(),
                           scores, op.experts.data<std::int32_t>(), op.weights.data<float>()});
}

void route_backward(const Launch& at, const RouteBackward& op) {
  launch_rows(at, "route_backward", op.logits.rows(), 1,
              RouterGradients{element::router_row(op.options, op.logits.columns(), op.experts.columns()),
                              op.logits.data<float>(), op.experts.data<std::int32_t>(), op.weights.data<float>(),
                              op.dweights.data<float>(), op.dlogits.data<float>()});
}

void count_routes(const Launch& at, const CountRoutes& op) {
  launch_rows(at, "count_sample_routes", op.counts.rows(), op.counts.columns(),
              SampleCounts{op.experts.data<std::int32_t>(), op.starts.data<std::int32_t>(), op.counts.data<float>(),
                           static_cast<int>(op.experts.columns()), static_cast<int>(op.counts.columns())});
}

void step_counts(const Launch& at, const StepCounts& op) {
  launch_rows(at, "step_counts", static_cast<std::int64_t>(op.value.size()), 1,
              SteppedByCounts{op.value.data(), op.counts.data(), op.mean, op.rate});
}

void sort_routes(const Launch& at, const SortRoutes& op) {
  const std::int64_t routes = op.experts.elements(), experts = op.offsets.elements() - 1;
  const auto* chosen = op.experts.data<std::int32_t>();
  auto* offsets = op.offsets.data<std::int32_t>();
  launch_rows(at, "count_routes", experts, 1, CountedRoutes{chosen, routes, offsets});
  launch_rows(at, "sum_counts", 1, 1, SummedCounts{offsets, static_cast<int>(experts)});
  launch_rows(
      at, "place_routes", experts, 1,
      PlacedRoutes{chosen, routes, static_cast<int>(op.experts.columns()), offsets, op.tokens.data<std::int32_t>(),
                   op.routes.data<std::int32_t>(), op.places.data<std::int32_t>()});
}

void combine_rows(const Launch& at, const CombineRows& op) {
  const std::int64_t columns = op.y.columns();
  assert(op.rows.dtype() == op.y.dtype() && op.rows.columns() == columns);
  with_type(op.y.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    launch_rows(at, "combine_rows", op.y.rows(), columns,
                CombinedRows<T>{op.rows.data<T>(), op.places.data<std::int32_t>(), op.y.data<T>(),
                                static_cast<int>(columns), static_cast<int>(op.places.columns())});
  });
}

}  // namespace maestro::cuda
