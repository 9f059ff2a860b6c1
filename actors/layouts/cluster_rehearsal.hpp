// SPDX-License-Identifier: Apache-2.0
// Layouts of a job on a described cluster, whose steps are planned once and rehearsed with as many changes of their
// times as are of interest. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/layouts/cluster_lanes.hpp"
#include "actors/layouts/cluster_part.hpp"
#include "actors/layouts/pooled_times.hpp"
#include "actors/plan/repeated_plans.hpp"

namespace maestro {

/// Layouts, rehearsed.
struct PlayedLayouts {
  double step_ms = 0;
  std::map<std::string, SectionShares> shares;
  Rehearsed lanes;     ///< to the end of the steps that count
  SectionGraph graph;  ///< of `lanes`
};

class ClusterRehearsal {
 public:
  /// Plans the steps. `plan`: the job with the layouts; `part`: what is played, else all. Cluster, units and lanes
  /// outlive the rehearsal.
  ClusterRehearsal(JobPlan plan, const ClusterLayouts& layouts, const DescribedCluster& cluster,
                   const std::vector<TracedUnit>& units, ClusterLanes& lanes, double hop_ms,
                   std::optional<ClusterPart> part = {});
  ClusterRehearsal(const ClusterRehearsal&) = delete;  // parts refer to each other
  ClusterRehearsal& operator=(const ClusterRehearsal&) = delete;

  /// Rehearses the steps. A step takes no less than its busiest device works, unless sections are changed.
  [[nodiscard]] PlayedLayouts play(const RehearsalChange& change = {}) const;
  /// Returns the passes of a step, as far as it is played.
  [[nodiscard]] std::size_t passes() const { return plans_.planned.front().micro_batches.size(); }

 private:
  [[nodiscard]] const JobPlan& played_plan() const { return part_ ? part_->plan : plan_; }
  [[nodiscard]] const std::vector<TracedUnit>& played_units() const { return part_ ? part_->units : *units_; }

  JobPlan plan_;
  const std::vector<TracedUnit>* units_;
  std::optional<ClusterPart> part_;
  PooledTimes pooled_;
  JobTimes times_;
  RepeatedPlans plans_;
};

}  // namespace maestro
