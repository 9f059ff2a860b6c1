// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/rehearsed_shares.hpp"

#include <algorithm>

namespace maestro {

namespace {
constexpr std::size_t starting_steps = 2;
}

std::optional<SteadySteps> steady_steps(const std::vector<double>& step_ends_ms) {
  if (step_ends_ms.size() < 2 * starting_steps) return std::nullopt;
  return SteadySteps{step_ends_ms[starting_steps - 1], step_ends_ms.back(), step_ends_ms.size() - starting_steps};
}

std::map<std::string, SectionShares> section_shares(const Rehearsed& rehearsed, const SectionGraph& graph,
                                                    const SteadySteps& time) {
  std::map<std::string, SectionShares> sections;
  for (const auto& [lane, intervals] : rehearsed.lanes) {
    const GraphNode& node = graph.node(lane.section);
    if (node.role == Role::source) continue;
    SectionShares& shares = sections[node.name];
    const double whole_ms = (time.end_ms - time.begin_ms) * static_cast<double>(node.replicas);
    double left_ms = time.end_ms - time.begin_ms;
    for (const LaneInterval& interval : intervals) {
      const double ms = std::min(interval.end_ms, time.end_ms) - std::max(interval.start_ms, time.begin_ms);
      if (ms <= 0) continue;
      left_ms -= ms;
      double& sum = interval.kind == LaneInterval::Kind::wait       ? shares.waits[*interval.waits_for]
                    : interval.kind == LaneInterval::Kind::boundary ? shares.step_ends
                                                                    : shares.passes;
      sum += ms / whole_ms;
    }
    if (left_ms > 0) shares.waits["work"] += left_ms / whole_ms;  // after its last work
  }
  return sections;
}

SectionShares mean_shares(const std::map<std::string, SectionShares>& by_stage, const std::string& section) {
  SectionShares mean;
  double stages = 0;
  for (const auto& [name, shares] : by_stage) {
    if (name == section || name.starts_with(section + ".stage")) ++stages;
  }
  for (const auto& [name, shares] : by_stage) {
    if (name != section && !name.starts_with(section + ".stage")) continue;
    mean.passes += shares.passes / stages;
    mean.step_ends += shares.step_ends / stages;
    for (const auto& [reason, share] : shares.waits) mean.waits[reason] += share / stages;
  }
  return mean;
}

std::map<std::string, double> passes_ms(const std::map<std::string, SectionShares>& shares, double step_ms) {
  std::map<std::string, double> passes;
  std::map<std::string, int> stages;
  for (const auto& [name, share] : shares) {
    const std::string section = name.substr(0, name.find(".stage"));
    passes[section] += share.passes * step_ms;
    ++stages[section];
  }
  for (auto& [section, ms] : passes) ms /= stages.at(section);
  return passes;
}

}  // namespace maestro
