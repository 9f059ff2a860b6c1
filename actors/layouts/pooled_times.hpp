// SPDX-License-Identifier: Apache-2.0
// The times of a job whose sections are on devices of unlike pools: passes and step ends by the prices of a replica's
// pool, writes by the slower of two networks, or inside a host between sections that share devices. Replicas on several
// pools step as slowly as the slowest of them, and exchange over the slowest network. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "actors/layouts/cluster_lanes.hpp"

namespace maestro {

class PooledTimes {
 public:
  /// `layouts`: of the replicas whose passes are timed, all or a part of those of `plan`; `samples`: of a step. All
  /// outlive the times.
  PooledTimes(const JobPlan& plan, const ClusterLayouts& layouts, const DescribedCluster& cluster,
              std::span<const SampleRef> samples, ClusterLanes& lanes, double hop_ms);
  PooledTimes(const PooledTimes&) = delete;  // times() refers to it
  PooledTimes& operator=(const PooledTimes&) = delete;

  /// Every tensor is written. This object outlives the result.
  [[nodiscard]] JobTimes times() const;

 private:
  struct Place {
    std::vector<PoolShare> shares;
    std::size_t group = 0;
  };
  /// Returns the pool of the micro-batch's replica.
  [[nodiscard]] std::size_t pool_of(const MicroBatchPlan& batch) const;
  [[nodiscard]] double action_ms(SectionId section, StepAction action) const;
  [[nodiscard]] double write_ms(SectionId from, SectionId to, std::int64_t rows) const;

  const JobPlan* plan_;
  const DescribedCluster* cluster_;
  std::vector<std::unique_ptr<PricedTimes>> priced_;  // by pool
  std::vector<JobTimes> times_;                       // likewise
  std::map<SectionId, Place> places_;                 // of stages
};

}  // namespace maestro
