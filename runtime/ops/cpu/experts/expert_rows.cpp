// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/experts/expert_rows.hpp"

#include <algorithm>
#include <cassert>

#include "runtime/ops/cpu/operands.hpp"
#include "runtime/ops/routing_math.hpp"

namespace maestro::cpu {

void route(ScratchPool& pool, const Route& op) {
  const std::int64_t experts = op.logits.columns(), chosen = op.experts.columns();
  assert(op.experts.rows() == op.logits.rows() && op.weights.elements() == op.experts.elements());
  assert(chosen >= 1 && chosen <= experts && op.options.groups <= element::most_router_groups);
  element::RouterRow row = element::router_row(op.options, experts, chosen);
  const bool by_sigmoid = op.options.kind == RouterKind::sigmoid;
  ScratchPool::Lease scratch = pool.lease();
  float* scores = by_sigmoid ? scratch.floats(experts) : nullptr;
  const float* bias = op.bias.defined() ? op.bias.data<float>() : nullptr;
  for (std::int64_t token = 0; token < op.logits.rows(); ++token) {
    row.logits = op.logits.data<float>() + token * experts;
    row.scores = by_sigmoid ? scores : row.logits;
    for (std::int64_t i = 0; by_sigmoid && i < experts; ++i) {
      scores[i] = element::RouterRow::score(row.logits[i], bias == nullptr ? 0.0F : bias[i]);
    }
    std::int32_t* best = op.experts.data<std::int32_t>() + token * chosen;
    row.choose(best);
    row.weigh(best, op.weights.data<float>() + token * chosen);
  }
}

void route_backward(const RouteBackward& op) {
  const std::int64_t experts = op.logits.columns(), chosen = op.experts.columns();
  assert(op.dlogits.elements() == op.logits.elements() && op.dweights.elements() == op.weights.elements());
  element::RouterRow row = element::router_row(op.options, experts, chosen);
  for (std::int64_t token = 0; token < op.logits.rows(); ++token) {
    row.logits = op.logits.data<float>() + token * experts;
    const std::int64_t first = token * chosen;
    row.gradient(op.experts.data<std::int32_t>() + first, op.weights.data<float>() + first,
                 op.dweights.data<float>() + first, op.dlogits.data<float>() + token * experts);
  }
}

void count_routes(const CountRoutes& op) {
  const std::span<const std::int32_t> starts = op.starts.span<std::int32_t>();
  const std::int64_t slots = op.experts.columns(), experts = op.counts.columns();
  assert(std::ssize(starts) == op.counts.rows() + 1 && starts.back() == op.experts.rows());
  std::ranges::fill(op.counts.span<float>(), 0.0F);
  const std::int32_t* chosen = op.experts.data<std::int32_t>();
  for (std::int64_t sample = 0; sample < op.counts.rows(); ++sample) {
    float* counts = op.counts.data<float>() + sample * experts;
    const auto at = static_cast<std::size_t>(sample);
    for (std::int64_t route = starts[at] * slots; route < starts[at + 1] * slots; ++route) ++counts[chosen[route]];
  }
}

void step_counts(const StepCounts& op) {
  assert(op.counts.size() == op.value.size());
  for (std::size_t i = 0; i < op.value.size(); ++i) {
    op.value[i] = element::stepped_by_count(op.value[i], std::exchange(op.counts[i], 0.0F), op.mean, op.rate);
  }
}

void sort_routes(ScratchPool& pool, const SortRoutes& op) {
  const std::span<const std::int32_t> chosen = op.experts.span<std::int32_t>();
  const std::span<std::int32_t> offsets = op.offsets.span<std::int32_t>();
  const std::span<std::int32_t> tokens = op.tokens.span<std::int32_t>(), routes = op.routes.span<std::int32_t>();
  const std::span<std::int32_t> places = op.places.span<std::int32_t>();
  assert(chosen.size() == places.size() && chosen.size() == tokens.size() && chosen.size() == routes.size());
  std::ranges::fill(offsets, 0);
  for (const std::int32_t expert : chosen) {
    assert(expert >= 0 && static_cast<std::size_t>(expert) + 1 < offsets.size());
    ++offsets[static_cast<std::size_t>(expert) + 1];
  }
  for (std::size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
  ScratchPool::Lease scratch = pool.lease();
  const Tensor taken = scratch.tensor({std::max<std::int64_t>(std::ssize(offsets) - 1, 1)}, DType::i32);
  const std::span<std::int32_t> next = taken.span<std::int32_t>();
  std::copy_n(offsets.begin(), offsets.size() - 1, next.begin());
  const std::int64_t slots = op.experts.columns();
  for (std::size_t route = 0; route < chosen.size(); ++route) {
    const std::int32_t row = next[static_cast<std::size_t>(chosen[route])]++;
    tokens[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(static_cast<std::int64_t>(route) / slots);
    routes[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(route);
    places[route] = row;
  }
}

void combine_rows(const PointwiseKernels& kernels, ScratchPool& pool, const CombineRows& op) {
  const std::int64_t columns = op.y.columns(), slots = op.places.columns();
  assert(op.rows.columns() == columns && op.places.rows() == op.y.rows());
  ScratchPool::Lease scratch = pool.lease();
  const bool narrow = op.y.dtype() == DType::bf16;
  float* sums = narrow ? scratch.floats(columns) : nullptr;
  const std::int32_t* place = op.places.data<std::int32_t>();
  for (std::int64_t token = 0; token < op.y.rows(); ++token, place += slots) {
    const Tensor y = op.y.row_slice(token, 1);
    const Out sum = narrow ? Out{sums, false} : out(y);
    kernels.cast(in(op.rows.row_slice(place[0], 1)), sum, columns);
    for (std::int64_t slot = 1; slot < slots; ++slot) {
      kernels.add({sum.data, false}, in(op.rows.row_slice(place[slot], 1)), sum, columns);
    }
    if (narrow) kernels.cast({sums, false}, out(y), columns);
  }
}

}  // namespace maestro::cpu
