// SPDX-License-Identifier: Apache-2.0
#include "actors/process/replica_builder.hpp"

#include <algorithm>
#include <exception>

#include "actors/job/emulated_step_end.hpp"
#include "actors/job/section_context.hpp"
#include "actors/services/device_groups.hpp"
#include "actors/services/snapshot_writer.hpp"
#include "runtime/collective/thread_group.hpp"
#include "sections/emulated_runner.hpp"
#include "sections/state_io.hpp"

namespace maestro {

namespace {

/// Calls `call`; for a device with separate memory on the device's thread, as its operators require.
void on_device(Device& device, const std::function<void()>& call) {
  if (device.ops().memory().host()) return call();
  call_on(device, call).get();
}

}  // namespace

SectionContext ReplicaBuilder::context(const ReplicaPlacement& place, const ParallelContext& parallel,
                                       const OperatorTable& ops) const {
  SectionContext context =
      planned_context(*plan_, plan_->sections[place.section.value()], plan_->graph.node(place.section));
  context.values = InitialValues::later;
  context.ops = &ops;
  context.parallel = parallel;
  context.replica = place.replica.value();
  for (const GraphRegister& each : plan_->graph.registers()) {  // equal initial values below adapters
    if (each.to == place.section) context.name = plan_->graph.node(each.from).section_name();
  }
  return context;
}

std::shared_ptr<Section> ReplicaBuilder::load(const ReplicaPlacement& place, const SectionContext& made_from) const {
  const PlannedSection& planned = plan_->sections[place.section.value()];
  const bool resumed = made_from.trained && start_->holds(*plan_, made_from.name);
  std::shared_ptr<Section> section = planned.factory(made_from);
  Parameters& parameters = section->parameters();
  share_moments(place, parameters);
  const bool frozen = !made_from.trained && !made_from.passes_gradient;
  const bool values_later = parameters.values_later();
  if (frozen && values_later) section->freeze();  // packs values when they arrive
  const bool adapted = made_from.lora.given();    // checkpoints lack the weights
  if (adapted || !resumed) {
    if (!planned.config.weights.empty()) {
      load_weights(*section, planned.config.weights).or_throw();
    } else if (values_later && (adapted || !plan_->graph.node(place.section).generates())) {  // which gets versions
      section->weights().parameters->initialise();
    }
  }
  if (resumed) {
    const RestoredState which = start_->begins_stage(*plan_) ? RestoredState::values : RestoredState::all;
    restore_snapshot(*section, start_->checkpoint, made_from.name, which).or_throw();
  } else if (adapted && values_later) {
    parameters.initialise();
  }
  if (frozen && !values_later) section->freeze();
  return section;
}

void ReplicaBuilder::share_moments(const ReplicaPlacement& place, Parameters& parameters) const {
  const auto replicas = static_cast<std::size_t>(plan_->graph.node(place.section).replicas);
  if (!plan_->sections[place.section.value()].config.zero || replicas == 1) return;
  const auto elements = static_cast<std::size_t>(parameters.elements());
  parameters.shard_optimizer_state(
      shard_range(elements, replicas, place.replica.value()));  // its shard of the reduction
}

std::vector<std::unique_ptr<Communicator>> ReplicaBuilder::make_group(const ReplicaPlacement& place,
                                                                      const RankGroup& group) const {
  if (!place.devices[static_cast<std::size_t>(group.first)].is_cuda()) return make_thread_group(group.size);
  std::vector<Device*> devices;
  for (std::int64_t member = 0; member < group.size; ++member) {
    devices.push_back(&device_of_(place, LayoutRank(static_cast<std::uint32_t>(group.first + member * group.stride))));
  }
  try {
    return join_devices(*cuda_status().backend, devices, groups_end_);
  } catch (const std::exception& failed) {
    throw JobError(plan_->graph.node(place.section).name + " replica " + std::to_string(place.replica.value()) +
                       ": cannot create the NCCL group of its devices: " + failed.what(),
                   ErrorCode::unavailable);
  }
}

std::vector<ParallelContext> ReplicaBuilder::ranks_of(const ReplicaPlacement& place,
                                                      std::vector<std::unique_ptr<Communicator>>& groups) const {
  const Layout layout = plan_->graph.node(place.section).layout_of(place.replica);
  std::vector<ParallelContext> ranks;
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) ranks.push_back({layout, rank});
  for (const RankGroup& group : rank_groups(layout)) {
    std::int64_t rank = group.first;
    for (std::unique_ptr<Communicator>& made : make_group(place, group)) {
      ranks[static_cast<std::size_t>(rank)].*group.member = groups.emplace_back(std::move(made)).get();
      rank += group.stride;
    }
  }
  return ranks;
}

void FrozenSections::keep(const SectionGraph& graph, const std::vector<BuiltReplica>& replicas) {
  for (const BuiltReplica& replica : replicas) {
    const bool whole = replica.runners.size() == 1 && graph.node(replica.place.section).frozen();
    if (!whole || !replica.runners[0]->context().memory().host()) continue;
    if (!replica.runners[0]->section().shareable()) continue;
    sections_[replica.place.section] = replica.runners[0]->shared_section();
  }
}

std::shared_ptr<Section> FrozenSections::of(SectionId section) const {
  const auto found = sections_.find(section);
  return found == sections_.end() ? nullptr : found->second;
}

std::shared_ptr<Section> ReplicaBuilder::shared(SectionId section, const OperatorTable& ops,
                                                const std::vector<BuiltReplica>& before) const {
  const auto found = std::ranges::find_if(before, [&](const BuiltReplica& other) {
    return other.place.section == section && other.runners[0]->section().shareable() &&
           &other.runners[0]->context().memory() == &ops.memory();
  });
  if (found != before.end()) return found->runners[0]->shared_section();
  const bool kept = ops.memory().host() && plan_->graph.node(section).frozen();  // a stage may train it
  return kept ? frozen_->of(section) : nullptr;
}

void ReplicaBuilder::build(BuiltReplica& replica, const std::vector<BuiltReplica>& before) const {
  const ReplicaPlacement& place = replica.place;
  const PlannedSection& planned = plan_->sections[place.section.value()];
  const std::vector<ParallelContext> ranks = ranks_of(place, replica.groups);
  for (const ParallelContext& rank : ranks) {
    Device& device = device_of_(place, LayoutRank(static_cast<std::uint32_t>(rank.rank)));
    const OperatorTable& ops = device.ops();
    SectionContext made_from = context(place, rank, ops);
    if (planned.config.emulated()) {
      made_from.meta = true;
      const bool meets = emulated_step_end(*plan_, place.section).sum_ms > 0;
      const auto gradients = static_cast<std::size_t>(meets ? plan_->graph.node(place.section).replicas : 0);
      replica.runners.push_back(std::make_shared<EmulatedRunner>(planned.factory(made_from), made_from, gradients));
      continue;
    }
    // Ranks work in groups of their replica, so only single-rank replicas can share weights.
    std::shared_ptr<Section> section = ranks.size() == 1 ? shared(place.section, ops, before) : nullptr;
    if (!section) on_device(device, [&] { section = load(place, made_from); });
    replica.runners.push_back(
        std::make_shared<SectionRunner>(std::move(section), made_from, planned.config.optimizer,
                                        AdamWOptimizer::Span(scheduled_steps(*plan_), plan_->stage.begin)));
  }
}

std::vector<BuiltReplica> ReplicaBuilder::build_all(const std::vector<ReplicaPlacement>& places) const {
  std::vector<BuiltReplica> built;
  for (const ReplicaPlacement& place : places) {
    BuiltReplica replica;
    replica.place = place;
    build(replica, built);
    built.push_back(std::move(replica));
  }
  return built;
}

void ReplicaBuilder::try_stored_states(ProcessId process, bool again) const {
  for (const ReplicaPlacement& place : plan_->places) {
    const bool trained = plan_->graph.node(place.section).trained();
    const bool from_checkpoint = trained && start_->holds(*plan_, plan_->graph.node(place.section).section_name());
    const bool stored = from_checkpoint || (!again && !plan_->sections[place.section.value()].config.weights.empty());
    const bool loaded_later = place.process == process && !plan_->options.check_only;
    if (stored && !loaded_later && place.replica == ReplicaIndex(0)) (void)load(place, context(place, {}, *host_ops_));
  }
}

}  // namespace maestro
