// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/cluster_rehearsal.hpp"

#include <algorithm>

namespace maestro {

namespace {

/// The most micro-batches in all schedules tried for a step: a search of more takes longer than the rehearsal.
constexpr std::int64_t most_tried = 1 << 19;
constexpr std::int64_t least_evaluations = 8;
constexpr std::int64_t most_by_size = 200;

/// Returns the plan with fewer evaluations if steps are large.
ResolvedJob with_evaluations(ResolvedJob plan) {
  std::int64_t batches = 0;
  for (const GraphNode& node : plan.graph.nodes()) {
    if (node.plays_in_steps()) batches += (plan.train.global_batch + node.micro_batch - 1) / node.micro_batch;
  }
  const std::int64_t most = std::max(least_evaluations, most_tried / std::max<std::int64_t>(1, batches));
  const std::int64_t given = plan.schedule.evaluations;  // 0: by the size of the step
  if (most < (given > 0 ? given : most_by_size)) plan.schedule.evaluations = most;
  return plan;
}

}  // namespace

ClusterRehearsal::ClusterRehearsal(ResolvedJob plan, const ClusterLayouts& layouts, const DescribedCluster& cluster,
                                   const std::vector<TracedUnit>& units, LayoutCatalogue& catalogue, double hop_ms,
                                   std::optional<ClusterPart> part)
    : plan_(with_evaluations(std::move(plan))),
      units_(&units),
      part_(std::move(part)),
      pooled_(plan_, part_ ? part_->layouts : layouts, cluster, units.front().samples, catalogue, hop_ms),
      times_(pooled_.times()) {
  if (part_) part_->plan.schedule.evaluations = plan_.schedule.evaluations;  // as for all replicas
  plans_ = repeated_plans_of(played_plan(), played_units(), times_).value_or_throw();
}

PlayedLayouts ClusterRehearsal::play(const RehearsalChange& change) const {
  const ResolvedJob& plan = played_plan();
  SteadyRehearsal steady = rehearse_repeated(plan, played_units(), plans_, times_, change).value_or_throw();
  PlayedLayouts played{steady.time.period_ms(), section_shares(steady.rehearsed, plan.graph, steady.time),
                       std::move(steady.rehearsed), plan.graph};
  if (!change.faster.empty()) return played;
  std::vector<const StepPlan*> steps;
  for (const std::size_t number : plans_.of_unit) steps.push_back(&plans_.planned[number]);
  played.step_ms = std::max(played.step_ms, busiest_ms(plan, steps, times_));
  return played;
}

}  // namespace maestro
