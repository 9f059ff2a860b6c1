// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/phase_counts.hpp"

namespace maestro {

PhaseCounts::PhaseCounts(const SectionGraph& graph, const StepPlan& plan) {
  for (const MicroBatchPlan& batch : plan.micro_batches) {
    if (!batch.phased) continue;
    Group& group = groups_[batch.group];
    ++group.left[batch.forward_phase];
    if (graph.splits_passes(batch.section) && batch.pass == Pass::train) ++group.left[batch.backward_phase];
    group.lanes.insert({batch.section, batch.replica});
  }
}

PhaseCounts::Opening PhaseCounts::opening(std::uint32_t group) const {
  const Group& of = groups_.at(group);
  return {group, of.left.begin()->first, {of.lanes.begin(), of.lanes.end()}};
}

std::vector<PhaseCounts::Opening> PhaseCounts::first() const {
  std::vector<Opening> openings;
  for (const auto& [group, of] : groups_) {
    if (of.left.begin()->first > 0) openings.push_back(opening(group));
  }
  return openings;
}

std::optional<PhaseCounts::Opening> PhaseCounts::done(std::uint32_t group, std::uint32_t phase) {
  std::map<std::uint32_t, std::int64_t>& left = groups_.at(group).left;
  if (--left.at(phase) > 0) return std::nullopt;
  left.erase(phase);
  if (left.empty() || left.begin()->first < phase) return std::nullopt;
  return opening(group);
}

}  // namespace maestro
