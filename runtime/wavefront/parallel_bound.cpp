// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/parallel_bound.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <queue>
#include <utility>

namespace maestro {

namespace {

/// Sums of the smallest values added so far: Fenwick trees over the values' places in sorted order.
class SmallestSums {
 public:
  explicit SmallestSums(std::vector<double> values)
      : values_(std::move(values)), rank_(values_.size()), counts_(values_.size() + 1), sums_(values_.size() + 1) {
    std::vector<std::size_t> order(values_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [this](std::size_t at) { return values_[at]; });
    for (std::size_t rank = 0; rank < order.size(); ++rank) rank_[order[rank]] = rank;
  }
  void put(std::size_t at) {
    for (std::size_t node = rank_[at] + 1; node < sums_.size(); node += node & -node) {
      ++counts_[node];
      sums_[node] += values_[at];
    }
  }
  /// Returns the sum of the `count` smallest; at least so many were added.
  [[nodiscard]] double of(std::size_t count) const {
    double sum = 0;
    std::size_t node = 0;
    for (std::size_t step = std::bit_floor(values_.size()); step > 0; step /= 2) {
      if (node + step >= sums_.size() || counts_[node + step] > count) continue;
      node += step;
      count -= counts_[node];
      sum += sums_[node];
    }
    return sum;
  }

 private:
  std::vector<double> values_;
  std::vector<std::size_t> rank_;  // rank by place in `values_`
  std::vector<std::size_t> counts_;
  std::vector<double> sums_;
};

std::vector<double> values_of(const std::vector<BoundedJob>& jobs, double BoundedJob::*field) {
  std::vector<double> values;
  for (const BoundedJob& job : jobs) values.push_back(job.*field);
  return values;
}

double sum_for(const std::vector<double>& sums, std::size_t machines) {
  return machines < sums.size() ? sums[machines] : 0;
}

}  // namespace

double parallel_bound(std::span<const BoundedJob> jobs, std::size_t machines, const EdgeSums& edges) {
  std::vector<BoundedJob> longest(jobs.begin(), jobs.end());
  std::sort(longest.begin(), longest.end(), [](const auto& a, const auto& b) { return a.body > b.body; });
  std::vector<double> sums(longest.size() + 1, 0.0);  // sums of the first l bodies
  SmallestSums heads(values_of(longest, &BoundedJob::head));
  SmallestSums tails(values_of(longest, &BoundedJob::tail));
  double bound = 0;
  for (std::size_t l = 1; l <= longest.size(); ++l) {
    sums[l] = sums[l - 1] + longest[l - 1].body;
    heads.put(l - 1);
    tails.put(l - 1);
    if (l < machines) continue;
    // Sums of the k smallest are convex in k, and so is the sum over k machines from 0 to l mod m, and from there to m.
    // So the mean over k machines is largest at one of their ends.
    for (const std::size_t k : {l % machines, machines}) {
      if (k == 0) continue;
      const std::size_t at_least = k * (l / machines) + std::min(k, l % machines);
      const double body = sums[l] - sums[l - at_least];
      const double before = std::max(heads.of(k), sum_for(edges.before, k));
      const double after = std::max(tails.of(k), sum_for(edges.after, k));
      bound = std::max(bound, (before + after + body) / static_cast<double>(k));
    }
  }
  return bound;
}

double preemptive_schrage(std::vector<BoundedJob> jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.head < b.head; });
  std::priority_queue<std::pair<double, double>> ready;  // tail, rest of the body
  double now = 0;
  double bound = 0;
  std::size_t next = 0;
  while (next < jobs.size() || !ready.empty()) {
    if (ready.empty()) now = std::max(now, jobs[next].head);
    for (; next < jobs.size() && jobs[next].head <= now; ++next) ready.emplace(jobs[next].tail, jobs[next].body);
    const auto [tail, left] = ready.top();
    ready.pop();
    const double until = next < jobs.size() ? std::min(now + left, jobs[next].head) : now + left;
    if (until < now + left) {
      ready.emplace(tail, now + left - until);
    } else {
      bound = std::max(bound, until + tail);
    }
    now = until;
  }
  return bound;
}

}  // namespace maestro
