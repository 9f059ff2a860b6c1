// SPDX-License-Identifier: Apache-2.0
// Seats of repeatable sections (SectionGraph::repeatable): their replicas may change processes during a run. Replicas
// and plans stay as they are when a seat moves, so that losses do not depend on the processes that are there. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "actors/messages/addresses.hpp"
#include "runtime/core/result.hpp"
#include "runtime/graph/placement.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

/// Returns the seats of a lost process with the processes that take them over: of the processes with a replica of the
/// section, the one with the fewest seats of it. `seats`: of all replicas. Error `unavailable`: a lost replica is of a
/// section that is not repeatable; `not_found`: only that no other process has a section.
[[nodiscard]] Result<std::vector<Seat>> adopt_seats(const SectionGraph& graph, std::span<const Seat> seats,
                                                    ProcessId lost);

/// Returns the seats of all replicas.
[[nodiscard]] std::vector<Seat> seats_of(const Directory& directory);

/// Returns why seats of this job cannot move, in a few words; empty if they can: a repeatable section or a consumer of
/// one is on a GPU, whose memory is shared with the processes of the start.
[[nodiscard]] std::string why_seats_stay(const SectionGraph& graph, const std::vector<ReplicaPlacement>& places);

}  // namespace maestro
