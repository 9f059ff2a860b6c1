// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/pooled_times.hpp"

#include <algorithm>

namespace maestro {

PooledTimes::PooledTimes(const ResolvedJob& plan, const ClusterLayouts& layouts, const DescribedCluster& cluster,
                         std::span<const SampleRef> samples, LayoutCatalogue& catalogue, double hop_ms)
    : plan_(&plan), cluster_(&cluster) {
  const auto dry = std::make_shared<DrySections>(plan, samples, false);
  for (std::size_t pool = 0; pool < cluster.pools.size(); ++pool) {
    priced_.push_back(std::make_unique<PricedTimes>(plan, dry, catalogue.prices(pool), hop_ms, catalogue.passes(pool)));
    times_.push_back(priced_.back()->times());
  }
  for (const auto& [section, on] : layouts) {
    for (const SectionId stage : plan.graph.stages_of(section)) places_[stage] = {on.shares(), on.group};
  }
}

JobTimes PooledTimes::times() const {
  JobTimes made;
  made.pass = [this](const MicroBatchPlan& batch) { return times_[pool_of(batch)].pass(batch); };
  made.action = [this](SectionId section, StepAction action) { return action_ms(section, action); };
  made.write = [this](SectionId from, SectionId to, std::int64_t rows) { return write_ms(from, to, rows); };
  made.hop_ms = times_.front().hop_ms;
  made.sharing = DeviceSharing::streams;
  made.apart = true;
  return made;
}

std::size_t PooledTimes::pool_of(const MicroBatchPlan& batch) const {
  const auto found = places_.find(batch.section);
  if (found == places_.end()) return 0;  // a source uses no device
  auto share = found->second.shares.begin();
  for (std::int64_t before = batch.replica.value(); before >= share->replicas; ++share) before -= share->replicas;
  return share->pool;
}

double PooledTimes::action_ms(SectionId section, StepAction action) const {
  const auto found = places_.find(section);
  if (found == places_.end()) return times_.front().action(section, action);
  const std::vector<PoolShare>& shares = found->second.shares;
  const GraphNode& node = plan_->graph.node(section);
  const bool bridged = shares.size() > 1 && node.trained() && is_exchange(action);
  double bytes = 0;
  if (bridged) {
    Parameters& parameters = priced_[shares.front().pool]->probe(section).runner().section().parameters();
    const WireFormats wire = wire_formats(node.gradient_wire, action != StepAction::sum);
    const GradientWire sent = action == StepAction::sum_to_shards ? wire.parts : wire.sums;
    bytes = (action == StepAction::sum ? wire_bytes_per_element(wire) : wire_bytes_per_element(sent)) *
            static_cast<double>(parameters.elements());
  }
  double most_ms = 0;
  for (const PoolShare& share : shares) {
    double ms = times_[share.pool].action(section, action);
    if (bridged) {
      const std::int64_t devices = plan_->sections[section.value()].config.pipeline * node.layout.ranks();
      const double ring_ms = exchange_prices(*cluster_, shares).exchange_ms(bytes, node.replicas, devices);
      const double own_ms = exchange_prices(*cluster_, {&share, 1}).exchange_ms(bytes, node.replicas, devices);
      ms += (action == StepAction::sum ? 2 : 1) * (ring_ms - own_ms);  // there and back
    }
    most_ms = std::max(most_ms, ms);
  }
  return most_ms;
}

double PooledTimes::write_ms(SectionId from, SectionId to, std::int64_t rows) const {
  const auto sender = places_.find(from);
  const auto receiver = places_.find(to);
  const double hop_ms = times_.front().hop_ms;
  const auto pool_at = [](const auto& place) { return place->second.shares.front().pool; };
  if (sender == places_.end() || receiver == places_.end()) {
    return times_[receiver == places_.end() ? 0 : pool_at(receiver)].write(from, to, rows);
  }
  const double bytes = write_bytes(*plan_, from, to, rows);
  const DescribedPool& pool = cluster_->pools[pool_at(sender)];
  if (sender->second.group == receiver->second.group) {  // on the same hosts
    return hop_ms + pool.inside.latency_ms + bytes / pool.inside.bytes_per_ms;
  }
  double slowest_ms = 0;
  for (const PoolShare& one : sender->second.shares) {
    for (const PoolShare& other : receiver->second.shares) {
      slowest_ms =
          std::max({slowest_ms, times_[one.pool].write(from, to, rows), times_[other.pool].write(from, to, rows)});
      if (one.pool == other.pool || !cluster_->between) continue;
      const double share = 1.0 / static_cast<double>(cluster_->pools[one.pool].devices_of_host);
      slowest_ms = std::max(slowest_ms,
                            hop_ms + cluster_->between->latency_ms + bytes / (cluster_->between->bytes_per_ms * share));
    }
  }
  return slowest_ms;
}

}  // namespace maestro
