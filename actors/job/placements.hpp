// SPDX-License-Identifier: Apache-2.0
// Moves placements of repeatable sections (SectionGraph::repeatable), whose replicas may change processes during a run.
// Replicas and plans do not change when a placement moves, so losses do not depend on which processes run. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "actors/messages/addresses.hpp"
#include "runtime/core/result.hpp"
#include "runtime/graph/placement.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

/// Returns the placements of a lost process with the processes that take them over: each placement moves to the process
/// with the fewest placements of its section and context, at least one. `placements`: of every replica. Error
/// `unavailable`: a lost section is not repeatable; `not_found`: all lost sections are repeatable, but no other process
/// has a replica like one of them.
[[nodiscard]] Result<std::vector<Placement>> adopt_placements(const SectionGraph& graph,
                                                              std::span<const Placement> placements, ProcessId lost);

/// Returns the placements that `joining` takes over for a fair share of a section's replicas, stage by stage, each from
/// the process with the most of them. The error is a line: no such section, a section that cannot move, or no placement
/// left.
[[nodiscard]] Result<std::vector<Placement>> share_placements(const SectionGraph& graph,
                                                              std::span<const Placement> placements, ProcessId joining,
                                                              const std::string& section);

/// Returns how many processes can join a job after its start: for each section with `least`, one less than its
/// replicas, since one process always has the section.
[[nodiscard]] std::size_t most_joining(const SectionGraph& graph);

/// A process that joins a job for the replicas of a section.
struct Joining {
  std::string section;
  ProcessId process;
  std::uint32_t host = 0;
  std::int64_t before = 0;  ///< processes that may have joined earlier on this host
};
/// Returns the places of the section's stages in the joining process: on `devices`, "cpu:2,cpu:3", or on the cores of
/// its host that `places` uses least. Throws JobError for an unknown section or device, or a wrong number of devices.
[[nodiscard]] std::vector<ReplicaPlacement> places_of_joining(const SectionGraph& graph,
                                                              std::span<const ReplicaPlacement> places,
                                                              const Joining& joining, const std::string& devices,
                                                              std::int64_t cores);

/// Applies moves to the placements of `process`.
void follow_moves(std::vector<Placement>& own, std::span<const Placement> moved, ProcessId process);

/// Returns "process 1 takes section 'teacher' replica 0 and 2, process 3 takes section 'teacher' replica 1".
[[nodiscard]] std::string text_of(std::span<const Placement> moved, const SectionGraph& graph);

/// Returns the placements of all replicas.
[[nodiscard]] std::vector<Placement> placements_of(const Directory& directory);

/// Returns why placements of this job cannot move, in a few words; empty if they can. They cannot if a repeatable
/// section or its consumer is on a GPU, whose memory is shared with the processes of the start.
[[nodiscard]] std::string why_placements_stay(const SectionGraph& graph, const std::vector<ReplicaPlacement>& places);

}  // namespace maestro
