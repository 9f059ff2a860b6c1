// SPDX-License-Identifier: Apache-2.0
// Elastic sections (SV-11).
#include <algorithm>
#include <cmath>

#include "actors/run/supervisor.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

namespace {
constexpr std::chrono::milliseconds look_interval(100);

std::string percent(double share) {
  return std::to_string(std::lround(share * 100)) + "%";
}

}  // namespace

void Supervisor::look_at_seats() {
  if (membership_.phase() > RunPhase::running || options_.seats.elastic.empty()) return;
  delayed_send(this, look_interval, LookDue{});
  const bool quiet = why_nothing_moves().empty();
  for (const std::string& section : options_.seats.elastic) {
    if (quiet && !looked_.empty()) judge(section);
    if (!quiet) balances_[section].moved();
  }
  looked_.clear();
  if (!quiet) return;
  for (const ReplicaAddress& replica : directory_.replicas()) {
    request(replica.actor, look_interval, StatusRequest{})
        .then([this](const WaitingFor& answer) { looked_.push_back(answer); }, [](const caf::error&) {});
  }
}

/// Counts the last look.
void Supervisor::judge(const std::string& section) {
  const auto of_section = [&](SectionId id) { return options_.graph->node(id).section_name() == section; };
  double consumers = 0, waiting = 0, without_work = 0;
  std::map<ProcessId, bool> busy;
  for (const ReplicaAddress& replica : directory_.replicas()) {
    const auto answer = std::ranges::find_if(looked_, [&](const WaitingFor& one) {
      return one.section == replica.section && one.replica == replica.replica;
    });
    if (answer == looked_.end()) continue;
    if (of_section(replica.section)) busy[replica.process] |= answer->kind == WaitKind::nothing;
    const auto feeds = [&](const GraphEdge& edge) { return edge.to == replica.section && of_section(edge.from); };
    if (of_section(replica.section) || std::ranges::none_of(options_.graph->edges(), feeds)) continue;
    ++consumers;
    waiting += answer->kind == WaitKind::input && of_section(answer->peer) ? 1 : 0;
    without_work += answer->kind == WaitKind::work ? 1 : 0;
  }
  if (consumers == without_work || busy.empty()) return;  // the run stands still
  const auto idle = std::ranges::count_if(busy, [](const auto& process) { return !process.second; });
  const double idle_share = static_cast<double>(idle) / static_cast<double>(busy.size());
  switch (balances_[section].look(waiting / consumers, idle_share)) {
    case SeatDecision::keep:
      return;
    case SeatDecision::one_more:
      return one_more(section);
    case SeatDecision::one_less:
      return one_less(section);
  }
}

void Supervisor::one_more(const std::string& section) {
  const SeatAnswer joining = let_join({section});
  if (!joining.refusal.empty()) return;  // it has as many as it may have
  started_new_.insert(joining.process);
  options_.seats.note("section '" + section + "' is waited for in " + percent(balances_[section].waiting()) +
                      " of the time: starting process " + std::to_string(joining.process.value()) + " for it");
  options_.seats.start_new(joining.process, section);
}

void Supervisor::one_less(const std::string& section) {
  for (const ReplicaAddress& replica : directory_.replicas()) {
    const bool extra =
        options_.graph->node(replica.section).section_name() == section && started_new_.contains(replica.process);
    if (!extra || !let_leave({replica.process}).refusal.empty()) continue;
    started_new_.erase(replica.process);
    return options_.seats.note("the processes of section '" + section + "' have nothing to do in " +
                               percent(balances_[section].idle()) + " of the time: process " +
                               std::to_string(replica.process.value()) + " ends");
  }
}

}  // namespace maestro
