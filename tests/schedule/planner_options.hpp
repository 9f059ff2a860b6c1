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

/// Returns the graph with as many micro-batches in flight as any plan may need.
inline SectionGraph roomy(const SectionGraph& graph) {
  SectionGraph raised = graph;
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) raised.set_max_in_flight(SectionId(index), 16);
  return raised;
}

}  // namespace maestro::testing
