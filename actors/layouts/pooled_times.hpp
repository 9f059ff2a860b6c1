// SPDX-License-Identifier: Apache-2.0
// The times of a job whose sections are on devices of unlike pools: passes and step ends by the prices of a section's
// pool, writes by the slower of two networks, or inside a host between sections that share devices. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "actors/layouts/cluster_lanes.hpp"

namespace maestro {

class PooledTimes {
 public:
  /// `samples`: of a step. All outlive the times.
  PooledTimes(const JobPlan& plan, const ClusterLayouts& layouts, const DescribedCluster& cluster,
              std::span<const SampleRef> samples, ClusterLanes& lanes, double hop_ms);
  PooledTimes(const PooledTimes&) = delete;  // times() refers to it
  PooledTimes& operator=(const PooledTimes&) = delete;

  /// Every tensor is written. This object outlives the result.
  [[nodiscard]] JobTimes times() const;

 private:
  [[nodiscard]] std::size_t pool_of(SectionId section) const;
  [[nodiscard]] double write_ms(SectionId from, SectionId to, std::int64_t rows) const;

  const JobPlan* plan_;
  const DescribedCluster* cluster_;
  std::vector<std::unique_ptr<PricedTimes>> priced_;  // by pool
  std::vector<JobTimes> times_;                       // likewise
  struct Place {
    std::size_t pool = 0;
    std::size_t group = 0;
  };
  std::map<SectionId, Place> places_;  // of stages
};

}  // namespace maestro
