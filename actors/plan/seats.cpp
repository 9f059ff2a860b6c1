// SPDX-License-Identifier: Apache-2.0
#include "actors/plan/seats.hpp"

#include <algorithm>
#include <map>

namespace maestro {

Result<std::vector<Seat>> adopt_seats(const SectionGraph& graph, std::span<const Seat> seats, ProcessId lost) {
  const std::vector<bool> repeatable = graph.repeatable();
  std::map<SectionId, std::map<ProcessId, std::size_t>> hosts;  // seats of each section by process
  for (const Seat& seat : seats) {
    if (seat.process != lost) ++hosts[seat.section][seat.process];
  }
  std::vector<Seat> moved;
  for (const Seat& seat : seats) {
    if (seat.process != lost) continue;
    const std::string section = "section '" + graph.node(seat.section).name + "'";
    if (!repeatable[seat.section.value()]) return Error{ErrorCode::unavailable, section + " has a state of its own"};
    auto& of_section = hosts[seat.section];
    if (of_section.empty()) return Error{ErrorCode::unavailable, "no other process has " + section};
    const auto fewest = std::ranges::min_element(of_section, {}, [](const auto& host) { return host.second; });
    ++fewest->second;
    moved.push_back({seat.section, seat.replica, fewest->first});
  }
  return moved;
}

std::string why_seats_stay(const SectionGraph& graph, const std::vector<ReplicaPlacement>& places) {
  const std::vector<bool> repeatable = graph.repeatable();
  for (const GraphEdge& edge : graph.edges()) {
    if (!repeatable[edge.from.value()]) continue;
    for (const SectionId end : {edge.from, edge.to}) {
      if (touches_cuda(places, end)) return "section '" + graph.node(end).name + "' is on a GPU";
    }
  }
  return {};
}

}  // namespace maestro
