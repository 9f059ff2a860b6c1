// SPDX-License-Identifier: Apache-2.0
// Determines the groups and paths of gradient reductions from the plan. Pure.
//
// WR-1 (agreement): every member of a reduction computes the same result, which depends only on the plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/graph/placement.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

/// A replica of a section or stage whose gradients are added to other replicas' gradients.
struct ReductionMember {
  SectionId section;
  ReplicaIndex replica;
  friend bool operator==(const ReductionMember&, const ReductionMember&) = default;
};

/// Returns a section's replicas, in the order of adding their gradients.
[[nodiscard]] std::vector<ReductionMember> replicas_of(const SectionGraph& graph, SectionId section);

/// Returns the first and the last stage of the replica that `stage` belongs to.
[[nodiscard]] std::vector<ReductionMember> end_stages_of(const SectionGraph& graph, SectionId stage,
                                                         ReplicaIndex replica);

/// Returns whether rank `layout_rank` is on a CUDA device in every member, and on another in each: such devices can
/// form a group.
[[nodiscard]] bool on_devices_of_their_own(const std::vector<ReplicaPlacement>& places,
                                           std::span<const ReductionMember> members, LayoutRank layout_rank);

/// Returns a line per trained section with several replicas that touches a CUDA device: "student: gradients of 2
/// replicas by NCCL", or "in host memory". `by_host`: groups of devices are disabled.
[[nodiscard]] std::vector<std::string> describe_reductions(const SectionGraph& graph,
                                                           const std::vector<ReplicaPlacement>& places, bool by_host);

}  // namespace maestro
