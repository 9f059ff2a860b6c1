// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/divisions.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace maestro {

namespace {

constexpr std::size_t most_divided = 5;             // sections; with more, not every division is tried
constexpr std::size_t most_of_all_variants = 2048;  // samples of a step; with more a rehearsal takes seconds
constexpr std::size_t most_candidates = 3;          // divisions to rehearse, without the one that shares no devices
constexpr double near_the_best = 1.25;              // ratio of bounds
constexpr std::int64_t least_devices = 256;         // devices per part

/// Returns the number of equal parts that plans for so many devices have. It divides a step's samples and every pool's
/// devices.
std::int64_t parts_of(const ClusterJob& job, std::int64_t devices) {
  std::int64_t common = job.base.train.global_batch;
  for (const DescribedPool& pool : job.cluster.pools) common = std::gcd(common, pool.devices());
  std::int64_t parts = job.has_parts() ? std::max<std::int64_t>(1, devices / least_devices) : 1;
  while (common % parts != 0) --parts;
  return parts;
}

}  // namespace

std::string text_of(const Division& division) {
  std::string text;
  for (const std::vector<std::string>& group : division.groups) {
    if (group.size() < 2) continue;
    text += text.empty() ? "" : ", ";
    for (std::size_t at = 0; at < group.size(); ++at) {
      text += (at == 0 ? "" : at + 1 == group.size() ? " and " : ", ") + group[at];
    }
  }
  if (text.empty()) return "all apart";
  return text + (division.sharing.staged ? " together" : " together, without stages");
}

Divisions::Divisions(const ClusterJob& job, const LayoutCatalogue& catalogue, std::int64_t devices)
    : job_(&job), lanes_(catalogue, parts_of(job, devices)) {}

std::optional<ClusterLayout> Divisions::kept_layout(const std::vector<std::int64_t>& devices) const {
  std::optional<ClusterLayout> best;
  for (std::size_t pool = 0; pool < devices.size(); ++pool) {
    const auto layout = lanes_.fewest(job_->options.kept, pool, infinite, devices[pool]);
    if (layout && (!best || layout->bound_ms < best->bound_ms)) best = layout;
  }
  return best;
}

std::vector<Division> Divisions::all() const {
  const std::vector<std::string>& sections = job_->keys.sections();
  Division apart;
  for (const std::string& section : sections) apart.groups.push_back({section});
  if (!job_->options.kept.empty() || sections.size() < 2) return {apart};
  if (sections.size() > most_divided) return {apart, {{sections}}};
  std::vector<Division> divisions;
  std::vector<std::vector<std::string>> made;
  const std::function<void(std::size_t)> extend = [&](std::size_t at) {
    if (at == sections.size()) {
      divisions.push_back({made});
      return;
    }
    made.push_back({sections[at]});
    extend(at + 1);
    made.pop_back();
    for (std::size_t group = 0; group < made.size(); ++group) {
      made[group].push_back(sections[at]);
      extend(at + 1);
      made[group].pop_back();
    }
  };
  extend(0);
  return divisions;
}

std::optional<SharedDevices> Divisions::shared_by(const Division& division, std::size_t group, std::size_t pool,
                                                  double most_ms, const std::vector<std::int64_t>& devices) const {
  const std::vector<std::string>& sections = division.groups[group];
  if (sections.front() != job_->options.kept) {
    return lanes_.fewest(sections, pool, most_ms, devices[pool], division.sharing);
  }
  const auto kept = kept_layout(devices);
  if (!kept || kept->pool != pool) return std::nullopt;
  return SharedDevices{{*kept}, kept->layout.devices(), kept->bound_ms, kept->bound_ms};
}

Allocator Divisions::allocator(const Division& division, const std::vector<std::int64_t>& devices) const {
  std::vector<DevicePool> pools;
  for (std::size_t pool = 0; pool < devices.size(); ++pool) {
    pools.push_back(
        {devices[pool], job_->cluster.pools[pool].devices_of_host, job_->cluster.pools[pool].price_per_hour});
  }
  const auto fewest = [this, division, devices](std::size_t group, std::size_t pool,
                                                double most_ms) -> std::optional<Allotment> {
    const auto shared = shared_by(division, group, pool, most_ms, devices);
    if (!shared) return std::nullopt;
    return Allotment{pool, shared->devices, shared->expected_ms};
  };
  return {std::move(pools), division.groups.size(), fewest, job_->options.most_per_hour};
}

ClusterLayouts Divisions::layouts_of(const Division& division, const Allocation& allocation,
                                     const std::vector<std::int64_t>& devices) const {
  ClusterLayouts layouts;
  for (std::size_t group = 0; group < division.groups.size(); ++group) {
    const SharedDevices shared =
        shared_by(division, group, allocation.sections[group].pool, allocation.most_ms, devices).value();
    for (std::size_t at = 0; at < division.groups[group].size(); ++at) {
      ClusterLayout& on = layouts[division.groups[group][at]];
      on = shared.layouts[at];
      on.group = group;
    }
  }
  return layouts;
}

std::vector<Division> Divisions::variants_of(const Division& division) const {
  if (division.groups.size() == job_->keys.sections().size()) return {division};
  const bool large = !job_->equal_samples && job_->samples().size() > most_of_all_variants;
  std::vector<Division> variants;
  for (const double exchanges : {0.3, 1.0}) {
    for (const bool staged : {true, false}) variants.push_back({division.groups, {staged, exchanges}});
    if (large) break;
  }
  return variants;
}

std::optional<Allocation> Divisions::allocated(const Division& division,
                                               const std::vector<std::int64_t>& devices) const {
  const Allocator allocator = this->allocator(division, devices);
  if (!job_->options.cheapest) return allocator.fastest();
  const std::vector<Allocation> front = allocator.front();
  return front.empty() ? std::nullopt : std::optional(front.back());
}

std::vector<DivisionCandidate> Divisions::candidates(const std::vector<std::int64_t>& devices) const {
  std::vector<DivisionCandidate> found;
  for (const Division& division : all()) {
    const Allocator allocator = this->allocator(division, devices);
    const std::optional<Allocation> fastest = allocator.fastest();
    if (!fastest) continue;
    DivisionCandidate candidate{division, *fastest, fastest->bound_ms, {}};
    if (job_->cluster.priced() && job_->options.kept.empty()) candidate.front = allocator.front();
    if (job_->options.cheapest) candidate.allocation = candidate.front.back();
    found.push_back(std::move(candidate));
  }
  return found;
}

std::optional<DivisionCandidate> Divisions::hidden_by_kept() const {
  const Division apart = all().front();
  const auto kept = kept_layout(job_->devices_of_pools());
  if (!kept) return std::nullopt;
  const auto hidden = allocator(apart, job_->devices_of_pools()).within(kept->bound_ms / (1 - job_->options.stall));
  if (!hidden) return std::nullopt;
  return DivisionCandidate{apart, *hidden, kept->bound_ms, {}};
}

std::vector<const DivisionCandidate*> Divisions::promising(const std::vector<DivisionCandidate>& candidates) const {
  const auto estimate = [&](const DivisionCandidate* each) {
    return job_->options.cheapest ? each->allocation.price_of_step() : each->allocation.bound_ms;
  };
  std::vector<const DivisionCandidate*> order;
  for (const DivisionCandidate& candidate : candidates) order.push_back(&candidate);
  std::ranges::stable_sort(order, {}, estimate);
  const double most = estimate(order.front()) * near_the_best;
  std::erase_if(order, [&](const DivisionCandidate* each) { return estimate(each) > most; });
  // Bounds do not include the waits between groups: among alike bounds, divisions with fewer groups are first.
  const double least = estimate(order.front()) * alike_costs;
  const auto others =
      std::ranges::find_if(order, [&](const DivisionCandidate* each) { return estimate(each) > least; });
  std::stable_sort(order.begin(), others, [](const DivisionCandidate* one, const DivisionCandidate* other) {
    return one->division.groups.size() < other->division.groups.size();
  });
  order.resize(std::min(order.size(), most_candidates));
  // Bounds favour shared devices, so sections apart always have a chance.
  if (std::ranges::find(order, &candidates.front()) == order.end()) order.push_back(&candidates.front());
  return order;
}

}  // namespace maestro
