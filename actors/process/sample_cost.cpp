// SPDX-License-Identifier: Apache-2.0
#include "actors/process/sample_cost.hpp"

#include <utility>

namespace maestro {

SampleCost sample_cost(const SectionGraph& graph, std::vector<std::shared_ptr<const Section>> meta_sections) {
  std::vector<double> backward;
  std::vector<std::int64_t> ranks;
  std::vector<Reading> readings;
  for (const GraphNode& node : graph.nodes()) {
    ranks.push_back(node.layout.ranks());
    readings.push_back(node.reading);
    const bool adapted = meta_sections[ranks.size() - 1]->adapters().has_value();
    backward.push_back(node.trained() && !adapted ? 2.0 : node.runs_backward() ? 1.0 : 0.0);
  }
  return [backward, ranks, readings, meta_sections = std::move(meta_sections)](SectionId section,
                                                                               const SampleRef& sample) {
    const Cost cost = meta_sections[section.value()]->cost(shape_of(sample, readings[section.value()]));
    const double share = 1.0 / static_cast<double>(ranks[section.value()]);  // the ranks share the work evenly
    const double again = backward[section.value()] > 0 ? cost.recomputed : 0;
    return PassCost{cost.flops * share, (cost.flops * backward[section.value()] + again) * share};
  };
}

}  // namespace maestro
