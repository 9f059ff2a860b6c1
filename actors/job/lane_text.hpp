// SPDX-License-Identifier: Apache-2.0
// Formats the places of a job's replicas. Pure.
#pragma once

#include <string>
#include <vector>

#include "actors/job/resolved_job.hpp"

namespace maestro {

/// Returns "cpu:0, cpu:1 of process 1".
[[nodiscard]] std::string place_text(const ReplicaPlacement& at);
/// Returns "student/0.1", the name of a trace's track.
[[nodiscard]] std::string rank_text(const SectionGraph& graph, SectionId section, ReplicaIndex replica,
                                    LayoutRank rank);
/// Returns "section 'student' replica 0 on cpu:0 of process 0" for every replica.
[[nodiscard]] std::vector<std::string> lanes_of(const ResolvedJob& plan);

}  // namespace maestro
