// SPDX-License-Identifier: Apache-2.0
#include "actors/job/planning_options.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace maestro {

bool has_emulated(const ResolvedJob& plan) {
  return std::ranges::any_of(plan.sections, [](const PlannedSection& section) { return section.config.emulated(); });
}

FlowLimits flow_limits(const ResolvedJob& plan) {
  return {plan.transport.slots, plan.train.global_batch, plan.validation_samples, most_slots};
}

PolicyOptions policy_options(const ResolvedJob& plan) {
  PolicyOptions options;
  options.deterministic = plan.train.deterministic;
  options.budget_ms = plan.schedule.budget_ms;
  options.evaluations = plan.schedule.evaluations;
  options.seed = static_cast<std::uint64_t>(plan.train.seed);
  return options;
}

std::shared_ptr<const SchedulingPolicy> scheduling_policy(const ResolvedJob& plan) {
  return make_policy(plan.schedule.policy, policy_options(plan));
}

namespace {

/// Assumed FLOPs of a GPU in a millisecond until passes are measured: the rate of training steps in bf16 on an H200
/// (benchmarks/gpu/README.md).
constexpr double gpu_unit_per_ms = 4.5e11;

/// Returns whether all sections with work are on GPUs.
bool is_on_gpus(const ResolvedJob& plan) {
  const auto on_gpus = [&](const ReplicaPlacement& place) {
    return plan.graph.node(place.section).role == Role::source ||
           std::ranges::all_of(place.devices, [](const DeviceId& id) { return id.kind == DeviceId::Kind::cuda; });
  };
  return !plan.places.empty() && std::ranges::all_of(plan.places, on_gpus);
}

/// Returns StepPlannerOptions::turns: the devices that several lanes of a process share. GPUs are left out, since they
/// run the streams of several sections concurrently, and so are replicas that share another replica's place (PL-4).
std::vector<std::vector<std::vector<std::uint32_t>>> turn_devices(const ResolvedJob& plan) {
  std::map<std::pair<ProcessId, DeviceId>, std::vector<const ReplicaPlacement*>> lanes;
  for (const ReplicaPlacement& place : plan.places) {
    const bool passes = plan.graph.node(place.section).plays_in_steps();
    if (!passes || place.shares || std::ranges::any_of(place.devices, &DeviceId::is_cuda)) continue;
    for (const DeviceId& device : std::set<DeviceId>(place.devices.begin(), place.devices.end())) {
      lanes[{place.process, device}].push_back(&place);
    }
  }
  std::vector<std::vector<std::vector<std::uint32_t>>> turns(plan.graph.nodes().size());
  std::uint32_t number = 0;
  for (const auto& [device, sharing] : lanes) {
    if (sharing.size() < 2) continue;
    for (const ReplicaPlacement* place : sharing) {
      auto& section = turns[place->section.value()];
      section.resize(static_cast<std::size_t>(plan.graph.node(place->section).replicas));
      section[place->replica.value()].push_back(number);
    }
    ++number;
  }
  return number > 0 ? turns : std::vector<std::vector<std::vector<std::uint32_t>>>();
}

}  // namespace

CostModel planned_costs(const ResolvedJob& plan) {
  std::vector<double> speeds;
  for (const auto& section : plan.sections) speeds.push_back(section.config.speed);
  auto cost = [cost = plan.cost, speeds = std::move(speeds)](SectionId section, const SampleRef& sample) {
    PassCost units = cost(section, sample);
    units.forward /= speeds[section.value()];
    units.backward /= speeds[section.value()];
    return units;
  };
  // Emulated devices take the times of their model; other devices are distinguished by measured passes only.
  if (has_emulated(plan)) return CostModel(std::move(cost), plan.unit_per_ms);
  return is_on_gpus(plan) ? CostModel(std::move(cost), gpu_unit_per_ms) : CostModel(std::move(cost));
}

std::function<PassCost(std::span<const SampleRef>)> replica_costs(const ResolvedJob& plan, SectionId section,
                                                                  ReplicaIndex replica) {
  const double speed = plan.sections[section.value()].config.replica_speed(replica.value());
  return [costs = planned_costs(plan), section, speed](std::span<const SampleRef> samples) {
    const PassCost fastest = costs.of(section, samples);
    return PassCost{fastest.forward / speed, fastest.backward / speed};
  };
}

StepPlannerOptions planner_options(const ResolvedJob& plan) {
  StepPlannerOptions options;
  options.graph = &plan.graph;
  options.policy = scheduling_policy(plan);
  options.costs = planned_costs(plan);
  options.limits = flow_limits(plan);
  for (const PlannedSection& section : plan.sections) options.speeds.push_back(section.config.replica_speeds);
  options.turns = turn_devices(plan);
  options.devices.resize(plan.graph.nodes().size());
  std::map<std::pair<std::uint32_t, DeviceId>, int> numbers;  // by host and device
  int next = 0;
  for (const ReplicaPlacement& place : plan.places) {
    std::vector<int>& lane = options.devices[place.section.value()].emplace_back();
    // A replica that shares a device counts as if it had its own: plans do not depend on which processes run.
    if (place.shares) {
      lane.push_back(next++);
      continue;
    }
    for (const DeviceId& device : std::set<DeviceId>(place.devices.begin(), place.devices.end())) {
      const auto [found, fresh] = numbers.try_emplace({place.host, device}, next);
      lane.push_back(found->second);
      if (fresh) ++next;
    }
  }
  return options;
}

}  // namespace maestro
