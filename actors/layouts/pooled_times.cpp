// SPDX-License-Identifier: Apache-2.0
#include "actors/layouts/pooled_times.hpp"

#include <algorithm>

namespace maestro {

PooledTimes::PooledTimes(const JobPlan& plan, const ClusterLayouts& layouts, const DescribedCluster& cluster,
                         std::span<const SampleRef> samples, ClusterLanes& lanes, double hop_ms)
    : plan_(&plan), cluster_(&cluster) {
  const auto dry = std::make_shared<DrySections>(plan, samples);
  for (std::size_t pool = 0; pool < cluster.pools.size(); ++pool) {
    priced_.push_back(std::make_unique<PricedTimes>(plan, dry, lanes.prices(pool), hop_ms, lanes.passes(pool)));
    times_.push_back(priced_.back()->times());
  }
  for (const auto& [section, on] : layouts) {
    for (const SectionId stage : plan.graph.stages_of(section)) places_[stage] = {on.pool, on.group};
  }
}

JobTimes PooledTimes::times() const {
  JobTimes made;
  made.pass = [this](const MicroBatchPlan& batch) { return times_[pool_of(batch.section)].pass(batch); };
  made.action = [this](SectionId section, StepAction action) {
    return times_[pool_of(section)].action(section, action);
  };
  made.write = [this](SectionId from, SectionId to, std::int64_t rows) { return write_ms(from, to, rows); };
  made.hop_ms = times_.front().hop_ms;
  made.apart = true;
  return made;
}

std::size_t PooledTimes::pool_of(SectionId section) const {
  const auto found = places_.find(section);
  return found == places_.end() ? 0 : found->second.pool;  // a source has no device
}

double PooledTimes::write_ms(SectionId from, SectionId to, std::int64_t rows) const {
  const auto sender = places_.find(from);
  const auto receiver = places_.find(to);
  const double bytes = write_bytes(*plan_, from, to, rows);
  const double hop_ms = times_.front().hop_ms;
  if (sender == places_.end() || receiver == places_.end()) return times_[pool_of(to)].write(from, to, rows);
  const DescribedPool& pool = cluster_->pools[sender->second.pool];
  if (sender->second.group == receiver->second.group) {  // on the same hosts
    return hop_ms + pool.inside.latency_ms + bytes / pool.inside.bytes_per_ms;
  }
  const double slower =
      std::max(times_[sender->second.pool].write(from, to, rows), times_[receiver->second.pool].write(from, to, rows));
  if (sender->second.pool == receiver->second.pool || !cluster_->between) return slower;
  const double share = 1.0 / static_cast<double>(pool.devices_of_host);
  return std::max(slower, hop_ms + cluster_->between->latency_ms + bytes / (cluster_->between->bytes_per_ms * share));
}

}  // namespace maestro
