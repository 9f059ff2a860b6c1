// SPDX-License-Identifier: Apache-2.0
#include "sections/parameter_holders.hpp"

#include <algorithm>

namespace maestro {

namespace {

/// Returns the spans, parts of one buffer, with neighbours joined.
std::vector<std::span<float>> with_neighbours_joined(std::vector<std::span<float>> spans) {
  std::ranges::sort(spans, {}, [](std::span<float> span) { return span.data(); });
  std::vector<std::span<float>> all;
  for (const std::span<float> span : spans) {
    if (!all.empty() && all.back().data() + all.back().size() == span.data()) {
      all.back() = {all.back().data(), all.back().size() + span.size()};
    } else {
      all.push_back(span);
    }
  }
  return all;
}

}  // namespace

bool is_counted(const ParallelContext& parallel, Holding holding) {
  switch (holding) {
    case Holding::tensor_parts:
      return parallel.context() == 0;
    case Holding::expert_parts:
      return parallel.layout.copy_of(parallel.rank) == 0;
    case Holding::replicated:
      return parallel.rank == 0;
  }
  return false;
}

std::vector<HeldGradients> held_gradients(const Parameters& parameters, const ParallelContext& parallel) {
  const auto held = [&](Holding holding, std::array<Communicator*, 2> groups) {
    return HeldGradients{parameters.gradients_of(holding), groups, is_counted(parallel, holding)};
  };
  return {held(Holding::tensor_parts, {parallel.context_group}),
          held(Holding::replicated, {parallel.tensor_group, parallel.context_group}),
          held(Holding::expert_parts, {parallel.copies_group})};
}

void sum_over_holders(const Parameters& parameters, const ParallelContext& parallel) {
  const std::vector<HeldGradients> all = held_gradients(parameters, parallel);
  for (Communicator* const group : {parallel.tensor_group, parallel.context_group, parallel.copies_group}) {
    if (group == nullptr) continue;
    std::vector<std::span<float>> summed;
    for (const HeldGradients& held : all) {
      if (std::ranges::find(held.groups, group) == held.groups.end()) continue;
      summed.insert(summed.end(), held.spans.begin(), held.spans.end());
    }
    for (const std::span<float> span : with_neighbours_joined(std::move(summed))) group->all_reduce_sum(span);
  }
}

}  // namespace maestro
