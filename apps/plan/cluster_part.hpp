// SPDX-License-Identifier: Apache-2.0
// A part of a cluster that is rehearsed in place of the cluster. If all samples have equal sizes, a section's replicas
// do the same work. A part with 1/n of all replicas, devices and samples therefore waits as the full layouts do. Pure.
//
// CU-1 (equal parts): n parts together have the replicas, devices and micro-batches of the full layouts.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "apps/plan/cluster_layout.hpp"
#include "runtime/rehearsal/traced_run.hpp"

namespace maestro {

/// The part to rehearse. Its passes and step ends take as long as in the full layouts, with exchanges between all
/// replicas.
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

/// Returns the layouts of one part out of `parts`, with unchanged bounds and memory.
[[nodiscard]] ClusterLayouts part_of(ClusterLayouts layouts, std::int64_t parts);
/// Returns one part's steps, out of `parts`: the first samples of each step.
[[nodiscard]] std::vector<TracedUnit> part_of(const std::vector<TracedUnit>& units, std::int64_t parts);

}  // namespace maestro
