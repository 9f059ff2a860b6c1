// SPDX-License-Identifier: Apache-2.0
// Placements of repeatable sections (SectionGraph::repeatable): their replicas may change processes during a run.
// Replicas and plans stay as they are when a placement moves, so that losses do not depend on the processes that are
// there. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "actors/messages/addresses.hpp"
#include "runtime/core/result.hpp"
#include "runtime/graph/placement.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

/// Returns the placements of a lost process with the processes that take them over: of the processes with a replica of
/// the section, the one with the fewest placements of it. `placements`: of all replicas. Error `unavailable`: a lost
/// replica is of a section that is not repeatable; `not_found`: only that no other process has a section.
[[nodiscard]] Result<std::vector<Placement>> adopt_placements(const SectionGraph& graph,
                                                              std::span<const Placement> placements, ProcessId lost);

/// Returns the placements that `joining` takes over for a fair share of a section's replicas, stage by stage, each from
/// the process with the most of them. The error is a line: no such section, a section that cannot move, no placement to
/// give.
[[nodiscard]] Result<std::vector<Placement>> share_placements(const SectionGraph& graph,
                                                              std::span<const Placement> placements, ProcessId joining,
                                                              const std::string& section);

/// Returns how many processes can join a job beside those of its start: for each section with `least` one less than it
/// has replicas, as some process always has it.
[[nodiscard]] std::size_t most_joining(const SectionGraph& graph);

/// A process that joins a job for the replicas of a section.
struct Joining {
  std::string section;
  ProcessId process;
  std::uint32_t host = 0;
  std::int64_t before = 0;  ///< processes of this host that may have joined before
};
/// Returns where the stages of the section run in this process: on `devices`, "cpu:2,cpu:3", or on the cores of its
/// host that `places` uses least. Throws JobError: no such section, no device or a wrong number of them.
[[nodiscard]] std::vector<ReplicaPlacement> places_of_joining(const SectionGraph& graph,
                                                              std::span<const ReplicaPlacement> places,
                                                              const Joining& joining, const std::string& devices,
                                                              std::int64_t cores);

/// Takes moves over into the placements of `process`.
void follow_moves(std::vector<Placement>& own, std::span<const Placement> moved, ProcessId process);

/// Returns "process 1 takes section 'teacher' replica 0 and 2, process 3 takes section 'teacher' replica 1".
[[nodiscard]] std::string text_of(std::span<const Placement> moved, const SectionGraph& graph);

/// Returns the placements of all replicas.
[[nodiscard]] std::vector<Placement> placements_of(const Directory& directory);

/// Returns why placements of this job cannot move, in a few words; empty if they can: a repeatable section or a
/// consumer of one is on a GPU, whose memory is shared with the processes of the start.
[[nodiscard]] std::string why_placements_stay(const SectionGraph& graph, const std::vector<ReplicaPlacement>& places);

}  // namespace maestro
