// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/measured_steps.hpp"

namespace maestro {

double whole_ms(const LaneTimes& times) {
  double sum = times.busy_ms + times.step_end_ms;
  for (const auto& [reason, ms] : times.wait_ms) sum += ms;
  return sum;
}

std::map<std::string, double> passes_by_section(const MeasuredStep& step, const SectionGraph& graph) {
  std::map<std::string, double> passes;
  std::map<std::string, int> lanes;
  for (const auto& [lane, report] : step.lanes) {
    const GraphNode& node = graph.node(lane.first);
    if (!node.plays_in_steps()) continue;
    passes[node.section_name()] += report.times.busy_ms;
    ++lanes[node.section_name()];
  }
  for (auto& [section, ms] : passes) ms /= lanes.at(section);
  return passes;
}

}  // namespace maestro
