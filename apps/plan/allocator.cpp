// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/allocator.hpp"

#include <algorithm>
#include <utility>

namespace maestro {

namespace {

constexpr int halvings = 60;
constexpr double longest_ms = 1e12;
constexpr double step_of_front = 1.05;

}  // namespace

Allocator::Allocator(std::vector<DevicePool> pools, std::size_t sections, Fewest fewest, double most_per_hour)
    : pools_(std::move(pools)), sections_(sections), fewest_(std::move(fewest)), most_per_hour_(most_per_hour) {}

std::int64_t Allocator::hosts_of(std::size_t pool, std::int64_t devices) const {
  return (devices + pools_[pool].devices_of_host - 1) / pools_[pool].devices_of_host;
}

double Allocator::price_of(const std::vector<std::int64_t>& used) const {
  double price = 0;
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    price += static_cast<double>(hosts_of(pool, used[pool])) * pools_[pool].price_per_hour;
  }
  return price;
}

void Allocator::extend(const Options& options, Allocation& made, std::vector<std::int64_t>& used,
                       std::optional<Allocation>& best) const {
  const double price = price_of(used);
  if (price > most_per_hour_) return;
  if (best && std::pair(price, made.devices) >= std::pair(best->price_per_hour, best->devices)) return;
  const std::size_t section = made.sections.size();
  if (section == sections_) {
    best = made;
    best->price_per_hour = price;
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) best->hosts.push_back(hosts_of(pool, used[pool]));
    return;
  }
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    const std::optional<Allotment>& allotment = options[section][pool];
    if (!allotment || used[pool] + allotment->devices > pools_[pool].devices) continue;
    used[pool] += allotment->devices;
    made.devices += allotment->devices;
    made.sections.push_back(*allotment);
    extend(options, made, used, best);
    made.sections.pop_back();
    made.devices -= allotment->devices;
    used[pool] -= allotment->devices;
  }
}

std::optional<Allocation> Allocator::within(double most_ms) const {
  Options options(sections_);
  for (std::size_t section = 0; section < sections_; ++section) {
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
      options[section].push_back(fewest_(section, pool, most_ms));
    }
  }
  Allocation made;
  std::vector<std::int64_t> used(pools_.size());
  std::optional<Allocation> best;
  extend(options, made, used, best);
  if (!best) return std::nullopt;
  best->most_ms = most_ms;
  for (const Allotment& allotment : best->sections) best->bound_ms = std::max(best->bound_ms, allotment.bound_ms);
  return best;
}

std::optional<Allocation> Allocator::fastest() const {
  double high = 1;
  while (high < longest_ms && !within(high)) high *= 2;
  if (!within(high)) return std::nullopt;
  double low = 0;
  for (int round = 0; round < halvings; ++round) {
    const double middle = (low + high) / 2;
    within(middle) ? high = middle : low = middle;
  }
  return within(high);
}

std::vector<Allocation> Allocator::front() const {
  std::vector<Allocation> points;
  std::optional<Allocation> next = fastest();
  const std::optional<Allocation> last = within(longest_ms);
  for (double most = next ? next->bound_ms : 0; next; next = within(most)) {
    points.push_back(*next);
    if (next->price_per_hour <= last->price_per_hour) break;  // a longer step only costs more
    most *= step_of_front;
  }
  return common_front(std::move(points));
}

std::vector<Allocation> common_front(std::vector<Allocation> points) {
  std::ranges::stable_sort(points, {},
                           [](const Allocation& each) { return std::pair(each.bound_ms, each.price_of_step()); });
  std::vector<Allocation> front;
  for (Allocation& point : points) {
    if (front.empty() || point.price_of_step() < front.back().price_of_step()) front.push_back(std::move(point));
  }
  return front;
}

}  // namespace maestro
