// SPDX-License-Identifier: Apache-2.0
// Layouts of a job on a described cluster. Plans the steps once; rehearses them repeatedly with changed pass times. Not
// thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/job/repeated_plans.hpp"
#include "apps/plan/cluster_part.hpp"
#include "apps/plan/layout_catalogue.hpp"
#include "apps/plan/pooled_times.hpp"

namespace maestro {

/// The result of a rehearsal.
struct PlayedLayouts {
  double step_ms = 0;
  std::map<std::string, SectionShares> shares;
  Rehearsed lanes;     ///< lanes up to the end of the counted steps
  SectionGraph graph;  ///< graph of the sections in `lanes`
};

class ClusterRehearsal {
 public:
  /// Plans the steps. `plan`: the job with the layouts; `part`: rehearsed in place of the full layouts. Cluster, units
  /// and catalogue outlive the rehearsal.
  ClusterRehearsal(ResolvedJob plan, const ClusterLayouts& layouts, const DescribedCluster& cluster,
                   const std::vector<TracedUnit>& units, LayoutCatalogue& catalogue, double hop_ms,
                   std::optional<ClusterPart> part = {});
  ClusterRehearsal(const ClusterRehearsal&) = delete;  // parts refer to each other
  ClusterRehearsal& operator=(const ClusterRehearsal&) = delete;

  /// Rehearses the steps. Without changes a step takes no less time than its busiest device works.
  [[nodiscard]] PlayedLayouts play(const RehearsalChange& change = {}) const;
  /// Returns the passes of a step, as far as it is played.
  [[nodiscard]] std::size_t passes() const { return plans_.planned.front().micro_batches.size(); }

 private:
  [[nodiscard]] const ResolvedJob& played_plan() const { return part_ ? part_->plan : plan_; }
  [[nodiscard]] const std::vector<TracedUnit>& played_units() const { return part_ ? part_->units : *units_; }

  ResolvedJob plan_;
  const std::vector<TracedUnit>* units_;
  std::optional<ClusterPart> part_;
  PooledTimes pooled_;
  JobTimes times_;
  RepeatedPlans plans_;
};

}  // namespace maestro
