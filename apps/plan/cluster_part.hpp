// SPDX-License-Identifier: Apache-2.0
// A part of a cluster that is rehearsed in place of all of it. If all samples have equal sizes, the replicas of a
// section do the same work, so 1/n of each section's replicas, on 1/n of the devices and for 1/n of a step's samples,
// wait for each other as all replicas do. Pure.
//
// CU-1 (equal parts): the layouts of n parts have the replicas, the devices and the micro-batches of the whole.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "apps/plan/cluster_layout.hpp"
#include "runtime/rehearsal/traced_run.hpp"

namespace maestro {

/// The part to rehearse. Its passes and step ends take as long as the whole's, with exchanges between all replicas.
struct ClusterPart {
  ResolvedJob plan;
  ClusterLayouts layouts;
  std::vector<TracedUnit> units;
};

/// Returns whether all samples of these steps have equal sizes.
[[nodiscard]] bool equal_samples(const std::vector<TracedUnit>& units);

/// Returns the largest number of equal parts that leaves each section `least` replicas and divides the `samples` of a
/// step into full micro-batches; else 1. If a section is on several pools, each part has as many replicas on each.
[[nodiscard]] std::int64_t equal_parts(const ClusterLayouts& layouts, std::int64_t samples, std::int64_t least);

/// Returns the layouts of one of so many equal parts, with the bounds and memory of the whole.
[[nodiscard]] ClusterLayouts part_of(ClusterLayouts layouts, std::int64_t parts);
/// Returns the steps of one of so many equal parts: the first samples of each step.
[[nodiscard]] std::vector<TracedUnit> part_of(const std::vector<TracedUnit>& units, std::int64_t parts);

}  // namespace maestro
