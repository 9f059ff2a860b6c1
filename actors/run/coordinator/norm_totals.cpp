// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/norm_totals.hpp"

#include <algorithm>
#include <string>

namespace maestro {

double NormTotals::Parts::total() const {
  double sum = 0;
  for (const auto& [replica, part] : by_replica) sum += part;
  return sum;
}

NormTotals::Answers NormTotals::add(const NormReport& report, const std::function<bool(SectionId)>& active) {
  auto& sections = steps_[report.step.value()];
  Parts& reported = sections[report.section];
  reported.by_replica[report.replica] = report.sum_of_squares;
  reported.reporters = report.reporters;
  double total = 0;
  std::map<std::string, double> by_section;
  std::vector<SectionId> together;
  for (std::uint32_t index = 0; index < graph_->nodes().size(); ++index) {  // NT-1
    const SectionId section(index);
    if (!graph_->node(section).trained() || !active(section)) continue;
    if (!joined_ && section_of(section) != section_of(report.section)) continue;
    const auto found = sections.find(section);
    if (found == sections.end() || !found->second.complete()) return {};
    const double own = found->second.total();
    total += own;
    by_section[section_of(section)] += own;
    together.push_back(section);
  }
  Answers answers;
  for (const SectionId section : together) {
    const double of_section = by_section[section_of(section)];
    answers.emplace_back(section, NormTotal{report.step, global_clip_ ? total : of_section, of_section});
    sections.erase(section);
  }
  if (sections.empty()) steps_.erase(report.step.value());
  return answers;
}

}  // namespace maestro
