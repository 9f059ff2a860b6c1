// SPDX-License-Identifier: Apache-2.0
// Routers and the order of routes, as expert_operators.hpp. Thread-safe.
#pragma once

#include "runtime/ops/cpu/pointwise/pointwise_kernels.hpp"
#include "runtime/ops/cpu/scratch.hpp"
#include "runtime/ops/expert_operators.hpp"

namespace maestro::cpu {

void route(ScratchPool& pool, const Route& op);
void route_backward(const RouteBackward& op);
void count_routes(const CountRoutes& op);
void step_counts(const StepCounts& op);
void sort_routes(ScratchPool& pool, const SortRoutes& op);
void combine_rows(const PointwiseKernels& kernels, ScratchPool& pool, const CombineRows& op);

}  // namespace maestro::cpu
