// SPDX-License-Identifier: Apache-2.0
// Options and samples for tests of StepPlanner.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/schedule/step_planner.hpp"
#include "tests/schedule/random_graph.hpp"

namespace maestro::testing {

inline std::vector<SampleRef> random_samples(Generator& random, std::int64_t count, std::int64_t sources = 1) {
  std::vector<SampleRef> samples;
  for (std::int64_t at = 0; at < count; ++at) {
    SampleRef sample{SampleId(random() % 1000), draw(random, 1, 9)};
    if (random() % 2 == 0) {
      sample.patches = draw(random, 1, 5);
      sample.visual = draw(random, 1, 5);
    }
    if (sources > 1) sample.source = static_cast<std::uint32_t>(draw(random, 0, sources - 1));
    samples.push_back(sample);
  }
  return samples;
}

inline StepPlannerOptions options_of(const SectionGraph& graph, std::string_view policy, FlowLimits limits) {
  StepPlannerOptions options;
  options.graph = &graph;
  PolicyOptions settings;
  settings.evaluations = 20;
  options.policy = make_policy(policy, settings);
  options.costs = CostModel(
      [](SectionId section, const SampleRef& sample) {
        const double work = static_cast<double>(sample.tokens + 3 * sample.patches) * (1.0 + section.value());
        return PassCost{work, 2 * work};
      },
      1);
  options.limits = limits;
  return options;
}

/// A few devices that lanes share, for plans and rehearsals.
struct SharedDevices {
  std::vector<std::vector<std::vector<int>>> devices;          // StepPlannerOptions::devices
  std::vector<std::vector<std::vector<std::uint32_t>>> turns;  // StepPlannerOptions::turns
};

/// Places each lane on one or two of `count` devices.
inline SharedDevices shared_devices(Generator& random, const SectionGraph& graph, std::int64_t count) {
  SharedDevices shared;
  for (const GraphNode& node : graph.nodes()) {
    auto& devices = shared.devices.emplace_back();
    auto& turns = shared.turns.emplace_back();
    for (std::int64_t replica = 0; node.role != Role::source && replica < node.replicas; ++replica) {
      const std::int64_t first = draw(random, 0, count - 1);
      const std::int64_t second = draw(random, 0, count - 1);
      turns.push_back({static_cast<std::uint32_t>(first)});
      if (second != first) turns.back().push_back(static_cast<std::uint32_t>(second));
      devices.emplace_back(turns.back().begin(), turns.back().end());
    }
  }
  return shared;
}

/// Returns the graph with as many micro-batches in flight as any plan may need.
inline SectionGraph roomy(const SectionGraph& graph) {
  SectionGraph raised = graph;
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) raised.set_max_in_flight(SectionId(index), 16);
  return raised;
}

}  // namespace maestro::testing
