// SPDX-License-Identifier: Apache-2.0
// Micro-batches and steps for tests of ReplicaLane: one input edge, and one output edge that returns a gradient.
#pragma once

#include "runtime/schedule/replica_lane.hpp"

namespace maestro {

inline constexpr Channel input{EdgeId(0), Direction::forward};
inline constexpr Channel gradient_of_output{EdgeId(1), Direction::gradient};
inline constexpr BuffersFree all_free{true, true};

inline MicroBatchPlan batch_of(std::uint32_t index, bool gradient, Pass pass = Pass::train, std::uint32_t ranks = 1) {
  MicroBatchPlan plan;
  plan.index = index;
  plan.backward_order = index;
  plan.pass = pass;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) plan.arrivals.push_back({input, index, {}, LayoutRank(rank)});
  if (!gradient || pass != Pass::train) return plan;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plan.arrivals.push_back({gradient_of_output, index, {}, LayoutRank(rank)});
  return plan;
}

inline StepBoundary end_of(std::uint64_t step) {
  StepBoundary mark;
  mark.step = StepId(step);
  return mark;
}

}  // namespace maestro
