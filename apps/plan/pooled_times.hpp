// SPDX-License-Identifier: Apache-2.0
// The times of a job whose sections are on devices of unlike pools. Passes and step ends have the prices of a replica's
// pool; writes use the slower of two networks, or stay inside a host if sections share devices. Replicas on several
// pools step as slowly as the slowest, and exchange over the slowest network. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "apps/plan/layout_catalogue.hpp"

namespace maestro {

class PooledTimes {
 public:
  /// `layouts`: layouts of the replicas to time, all or a part of the plan's; `samples`: samples of a step. All outlive
  /// the times.
  PooledTimes(const ResolvedJob& plan, const ClusterLayouts& layouts, const DescribedCluster& cluster,
              std::span<const SampleRef> samples, LayoutCatalogue& catalogue, double hop_ms);
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

  const ResolvedJob* plan_;
  const DescribedCluster* cluster_;
  std::vector<std::unique_ptr<PricedTimes>> priced_;  // by pool
  std::vector<JobTimes> times_;                       // by pool
  std::map<SectionId, Place> places_;                 // by stage
};

}  // namespace maestro
