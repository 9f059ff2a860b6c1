// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/elastic_watch.hpp"

#include <algorithm>
#include <cmath>

namespace maestro {

namespace {

std::string percent(double share) {
  return std::to_string(std::lround(share * 100)) + "%";
}

}  // namespace

std::vector<std::pair<std::string, PlacementDecision>> ElasticWatch::look(const Directory& directory, bool quiet) {
  std::vector<std::pair<std::string, PlacementDecision>> changes;
  for (const std::string& section : sections_) {
    if (!quiet) balances_[section].moved();
    if (!quiet || answers_.empty()) continue;
    if (const auto decision = judge(directory, section); decision != PlacementDecision::keep) {
      changes.emplace_back(section, decision);
    }
  }
  answers_.clear();
  return changes;
}

PlacementDecision ElasticWatch::judge(const Directory& directory, const std::string& section) {
  double consumers = 0, waiting = 0, without_work = 0;
  std::map<ProcessId, bool> busy;
  for (const ReplicaAddress& replica : directory.replicas()) {
    const auto answer = std::ranges::find_if(answers_, [&](const WaitingFor& one) {
      return one.section == replica.section && one.replica == replica.replica;
    });
    if (answer == answers_.end()) continue;
    const bool of_section = is_of(replica.section, section);
    if (of_section) busy[replica.process] |= answer->kind == WaitKind::nothing;
    const auto feeds = [&](const GraphEdge& edge) { return edge.to == replica.section && is_of(edge.from, section); };
    if (of_section || std::ranges::none_of(graph_->edges(), feeds)) continue;
    ++consumers;
    waiting += answer->kind == WaitKind::input && is_of(answer->peer, section) ? 1 : 0;
    without_work += answer->kind == WaitKind::work ? 1 : 0;
  }
  if (consumers == without_work || busy.empty()) return PlacementDecision::keep;  // without work for any consumer
  const auto idle = std::ranges::count_if(busy, [](const auto& process) { return !process.second; });
  const double idle_share = static_cast<double>(idle) / static_cast<double>(busy.size());
  return balances_[section].look(waiting / consumers, idle_share);
}

std::vector<ProcessId> ElasticWatch::extra(const Directory& directory, const std::string& section) const {
  std::vector<ProcessId> extra;
  for (const ReplicaAddress& replica : directory.replicas()) {
    if (is_of(replica.section, section) && started_.contains(replica.process)) extra.push_back(replica.process);
  }
  return extra;
}

std::string ElasticWatch::text_of_start(const std::string& section, ProcessId process) const {
  return "replicas wait for section '" + section + "' in " + percent(balances_.at(section).waiting()) +
         " of the time: starting process " + std::to_string(process.value()) + " for it";
}

std::string ElasticWatch::text_of_end(const std::string& section, ProcessId process) const {
  return "the processes of section '" + section + "' are idle in " + percent(balances_.at(section).idle()) +
         " of the time: ending process " + std::to_string(process.value());
}

}  // namespace maestro
