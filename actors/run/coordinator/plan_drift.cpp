// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/plan_drift.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "actors/run/coordinator/measured_steps.hpp"
#include "runtime/core/quantile.hpp"

namespace maestro {

namespace {

constexpr double tolerated = 0.1;          // share of the step time
constexpr double least_difference = 0.05;  // share of a section's pass time: below it, passes are as predicted

std::string in_ms(double ms) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f ms", ms);
  return text.data();
}

}  // namespace

bool PlanDrift::is_off() const {
  return std::abs(measured_ms - predicted_ms) > tolerated * predicted_ms;
}

PlanDrift drift_from(const PlanConfig& predicted, const SectionGraph& graph, const std::deque<MeasuredStep>& measured) {
  const std::size_t most = steps_before_comparison - steps_of_the_start;
  std::vector<double> steps;
  std::map<std::string, std::vector<double>> passes;
  for (std::size_t at = measured.size() - std::min(measured.size(), most); at < measured.size(); ++at) {
    steps.push_back(measured[at].ms);
    for (const auto& [section, ms] : passes_by_section(measured[at], graph)) passes[section].push_back(ms);
  }
  PlanDrift drift{predicted.predicted_step_ms, quantile_of(std::move(steps), 0.5), {}, 0, 0};
  const double direction = drift.measured_ms >= drift.predicted_ms ? 1 : -1;
  double largest = 0;
  for (const auto& [section, ms] : predicted.predicted_passes_ms) {
    const auto found = passes.find(section);
    if (found == passes.end()) continue;
    const double now = quantile_of(found->second, 0.5);
    const double difference = direction * (now - ms);
    if (difference <= largest || difference <= least_difference * ms) continue;
    largest = difference;
    drift.section = section;
    drift.predicted_passes_ms = ms;
    drift.measured_passes_ms = now;
  }
  return drift;
}

std::string text_of(const PlanDrift& drift) {
  const double share = drift.measured_ms / drift.predicted_ms - 1;
  const std::string passes = drift.section.empty()
                                 ? "; no section's passes explain it"
                                 : "; passes of " + drift.section + " take " + in_ms(drift.measured_passes_ms) +
                                       " instead of " + in_ms(drift.predicted_passes_ms);
  return "steps take " + in_ms(drift.measured_ms) + ", " + std::to_string(std::lround(std::abs(share) * 100)) +
         (share > 0 ? "% above the " : "% below the ") + in_ms(drift.predicted_ms) + " of [plan]" + passes +
         ": choose the layout again on this machine (maestro plan JOB.toml --vary all)";
}

}  // namespace maestro
