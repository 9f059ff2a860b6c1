// SPDX-License-Identifier: Apache-2.0
#include "apps/emulate/workload_rehearsal.hpp"

namespace maestro {

Result<SteadyRehearsal> rehearse_workload(const ResolvedJob& plan, std::int64_t steps, const PassConstants& constants,
                                          const RehearsalChange& change) {
  std::vector<TracedUnit> units;
  for (std::int64_t step = 0; step < steps + plan.train.ahead + 1; ++step) {
    TracedUnit& unit = units.emplace_back();
    unit.step = StepId(static_cast<std::uint64_t>(step) + 1);
    for (std::uint64_t number = 0; number < plan.corpus->samples(Split::train); ++number) {
      const SampleId id(number);
      const SamplePictures pictures = plan.corpus->pictures(Split::train, id);
      unit.samples.push_back({id, plan.corpus->length(Split::train, id), pictures.patches, pictures.visual,
                              pictures.images, 0, plan.corpus->source(Split::train, id)});
    }
  }
  JobTimes times;
  times.pass = [&](const MicroBatchPlan& batch) {
    const GraphNode& node = plan.graph.node(batch.section);
    PassCost sum;
    if (!node.plays_in_steps()) return sum;
    const SectionConfig& config = plan.sections[batch.section.value()].config;
    const double rate = plan.unit_per_ms * config.speed * config.replica_speed(batch.replica.value());
    for (const SampleRef& sample : batch.samples) {
      const PassCost cost = plan.cost(batch.section, sample);
      sum.forward += cost.forward / rate;
      sum.backward += cost.backward / rate;
    }
    const auto constant = constants.find(node.section_name());
    if (constant == constants.end()) return sum;
    sum.forward += constant->second;
    if (node.runs_backward()) sum.backward += constant->second;
    return sum;
  };
  times.action = [](SectionId, StepAction) { return 0.0; };
  times.write = [](SectionId, SectionId, std::int64_t) { return 0.0; };
  return rehearse_steps(plan, units, times, change);
}

}  // namespace maestro
