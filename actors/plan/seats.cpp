// SPDX-License-Identifier: Apache-2.0
#include "actors/plan/seats.hpp"

#include <algorithm>
#include <map>

namespace maestro {

Result<std::vector<Seat>> adopt_seats(const SectionGraph& graph, std::span<const Seat> seats, ProcessId lost) {
  const std::vector<bool> repeatable = graph.repeatable();
  const auto name = [&](const Seat& seat) { return "section '" + graph.node(seat.section).name + "'"; };
  std::map<SectionId, std::map<ProcessId, std::size_t>> hosts;  // seats of each section by process
  for (const Seat& seat : seats) {
    if (seat.process != lost) {
      ++hosts[seat.section][seat.process];
    } else if (!repeatable[seat.section.value()]) {
      return Error{ErrorCode::unavailable, name(seat) + " has a state of its own"};
    }
  }
  std::vector<Seat> moved;
  for (const Seat& seat : seats) {
    if (seat.process != lost) continue;
    auto& of_section = hosts[seat.section];
    if (of_section.empty()) return Error{ErrorCode::not_found, "no other process has " + name(seat)};
    const auto fewest = std::ranges::min_element(of_section, {}, [](const auto& host) { return host.second; });
    ++fewest->second;
    moved.push_back({seat.section, seat.replica, fewest->first});
  }
  return moved;
}

std::vector<Seat> seats_of(const Directory& directory) {
  std::vector<Seat> seats;
  for (const ReplicaAddress& replica : directory.replicas()) {
    seats.push_back({replica.section, replica.replica, replica.process});
  }
  return seats;
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
