// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/collective_times.hpp"

#include <algorithm>
#include <limits>

#include "actors/job/job_probes.hpp"
#include "apps/plan/priced_times.hpp"

namespace maestro {

namespace {

/// Returns a pool on which only collectives cost time.
DescribedPool collectives_alone() {
  DescribedPool pool;
  pool.bf16_flops_per_ms = pool.fp32_flops_per_ms = pool.memory_bytes_per_ms = std::numeric_limits<double>::infinity();
  pool.inside = assumed_link;
  return pool;
}

/// Returns whether a replica of a section has a single rank.
bool single(const ResolvedJob& plan, const std::string& section) {
  const std::vector<SectionId> stages = plan.graph.stages_of(section);
  return !stages.empty() && plan.graph.node(stages.front()).layout.ranks() == 1;
}

}  // namespace

CollectiveTimes::CollectiveTimes(const ResolvedJob& traced, const ResolvedJob& plan) : plan_(&plan) {
  const DescribedPrices prices(collectives_alone());
  PricedPasses known;
  std::vector<TracedUnit> units;
  for (const ReplicaPlacement& place : plan.places) {
    const GraphNode& node = plan.graph.node(place.section);
    const std::string section = node.section_name();
    const bool on_processors = place.devices.front().kind == DeviceId::Kind::cpu;
    if (place.replica != ReplicaIndex(0) || !node.plays_in_steps() || !on_processors) continue;
    if (single(plan, section) || !single(traced, section)) continue;
    if (units.empty()) units = first_steps(plan, 1);
    PricedTimes times(plan, units.front().samples, prices, 0, known);
    OfStage& stage = stages_[place.section];
    for (const MicroBatchPlan& batch : batches_of(plan, place.section, units.front().samples)) {
      const PassCost ms = times.pass(batch);
      const auto rows = static_cast<double>(batch.rows(node.axis()));
      stage.forward.add(rows, ms.forward);
      stage.backward.add(rows, ms.backward);
    }
    stage.add_ranks_ms = times.action(place.section, StepAction::add_ranks);
    if (std::ranges::find(sections_, section) == sections_.end()) sections_.push_back(section);
  }
}

JobTimes CollectiveTimes::added_to(const JobTimes& times) const {
  JobTimes made = times;
  made.pass = [this, pass = times.pass](const MicroBatchPlan& batch) {
    PassCost cost = pass(batch);
    const auto found = stages_.find(batch.section);
    if (found == stages_.end()) return cost;
    const auto rows = static_cast<double>(batch.rows(plan_->graph.node(batch.section).axis()));
    cost.forward += found->second.forward.ms(rows);
    if (batch.pass == Pass::train) cost.backward += found->second.backward.ms(rows);
    return cost;
  };
  made.action = [this, action = times.action](SectionId section, StepAction of) {
    const auto found = stages_.find(section);
    const bool adds = of == StepAction::add_ranks && found != stages_.end();
    return action(section, of) + (adds ? found->second.add_ranks_ms : 0);
  };
  return made;
}

}  // namespace maestro
