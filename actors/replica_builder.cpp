#include "actors/replica_builder.hpp"

#include <algorithm>

#include "actors/snapshot_writer.hpp"
#include "runtime/state/checkpoint.hpp"
#include "sections/emulated_runner.hpp"
#include "sections/state_io.hpp"

namespace maestro {

StartPoint find_start_point(const JobPlan& plan) {
  StartPoint start;
  if (plan.options.resume.empty()) return start;
  start.checkpoint = resolve_checkpoint(plan.options.resume).value_or_throw();
  const Manifest manifest = load_checkpoint(start.checkpoint).value_or_throw();
  verify_checkpoint(start.checkpoint).or_throw();
  const std::string name = start.checkpoint.string();
  const auto batch = static_cast<std::uint64_t>(plan.train.global_batch);
  if (manifest.seed != static_cast<std::uint64_t>(plan.train.seed)) {
    throw JobError(name + " was made with train.seed = " + std::to_string(manifest.seed) + ", the job has " +
                   std::to_string(plan.train.seed) + "; resume with the same seed");
  }
  if (manifest.data_position != manifest.step * batch) {
    throw JobError(name + " stands at sample " + std::to_string(manifest.data_position) + " after " +
                   std::to_string(manifest.step) + " steps; train.global_batch = " + std::to_string(batch) +
                   " would skip or repeat samples: use " +
                   std::to_string(manifest.data_position / std::max<std::uint64_t>(manifest.step, 1)));
  }
  start.first_step = manifest.step + 1;
  return start;
}

SectionContext ReplicaBuilder::context(const ReplicaPlace& place) const {
  const GraphNode& node = plan_->graph.node(place.section);
  SectionContext context;
  context.name = node.name;
  context.seed = static_cast<std::uint64_t>(plan_->train.seed);
  context.precision = plan_->sections[place.section.value()].config.precision;
  context.trained = node.trained();
  context.passes_gradient = node.mode == Mode::forward_backward && node.frozen;
  context.ops = ops_;
  return context;
}

std::shared_ptr<Section> ReplicaBuilder::load(const ReplicaPlace& place) const {
  const PlannedSection& planned = plan_->sections[place.section.value()];
  const SectionContext made_from = context(place);
  const bool resumed = made_from.trained && !start_->checkpoint.empty();
  std::shared_ptr<Section> section = planned.factory(made_from);
  if (resumed) {
    restore_snapshot(*section, start_->checkpoint, made_from.name).or_throw();
  } else if (!planned.config.weights.empty()) {
    load_weights(*section, planned.config.weights).or_throw();
  }
  section->parameters().values_changed();
  if (!made_from.trained && !made_from.passes_gradient) section->freeze();
  return section;
}

std::vector<BuiltReplica> ReplicaBuilder::build_all(ProcessRank rank) const {
  std::vector<BuiltReplica> built;
  for (const ReplicaPlace& place : plan_->places) {
    if (place.rank != rank) continue;
    if (plan_->sections[place.section.value()].config.emulated()) {
      SectionContext emulated = context(place);
      emulated.prototype = true;
      built.push_back({place, std::make_shared<EmulatedRunner>(plan_->sections[place.section.value()].factory(emulated),
                                                               emulated)});
      continue;
    }
    const auto shared = std::ranges::find_if(built, [&](const BuiltReplica& other) {
      return other.place.section == place.section && other.runner->section().shareable();
    });
    std::shared_ptr<Section> section = shared == built.end() ? load(place) : shared->runner->shared_section();
    const OptimizerConfig& optimizer = plan_->sections[place.section.value()].config.optimizer;
    built.push_back(
        {place, std::make_shared<SectionRunner>(std::move(section), context(place), optimizer, plan_->train.steps)});
  }
  return built;
}

void ReplicaBuilder::try_stored_states(ProcessRank rank) const {
  for (const ReplicaPlace& place : plan_->places) {
    const bool trained = plan_->graph.node(place.section).trained();
    const bool stored =
        !plan_->sections[place.section.value()].config.weights.empty() || (trained && !start_->checkpoint.empty());
    const bool loaded_later = place.rank == rank && !plan_->options.check_only;
    if (stored && !loaded_later && place.replica == ReplicaIndex(0)) (void)load(place);
  }
}

}  // namespace maestro
