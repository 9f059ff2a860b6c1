#include "runtime/wavefront/parallel_bound.hpp"

#include <algorithm>
#include <queue>
#include <utility>

namespace maestro {

namespace {

/// The smallest `limit` values put in so far, ascending.
class Smallest {
 public:
  explicit Smallest(std::size_t limit) : limit_(limit) { values_.reserve(limit + 1); }
  void put(double value) {
    if (values_.size() == limit_ && value >= values_.back()) return;
    values_.insert(std::upper_bound(values_.begin(), values_.end(), value), value);
    if (values_.size() > limit_) values_.pop_back();
  }
  double operator[](std::size_t at) const { return values_[at]; }

 private:
  std::size_t limit_;
  std::vector<double> values_;
};

double sum_for(const std::vector<double>& sums, std::size_t machines) {
  return machines < sums.size() ? sums[machines] : 0;
}

}  // namespace

double parallel_bound(std::span<const BoundedJob> jobs, std::size_t machines, const EdgeSums& edges) {
  std::vector<BoundedJob> longest(jobs.begin(), jobs.end());
  std::sort(longest.begin(), longest.end(), [](const auto& a, const auto& b) { return a.body > b.body; });
  std::vector<double> sums(longest.size() + 1, 0.0);  // of the bodies of the first l
  Smallest heads(machines);
  Smallest tails(machines);
  double bound = 0;
  for (std::size_t l = 1; l <= longest.size(); ++l) {
    sums[l] = sums[l - 1] + longest[l - 1].body;
    heads.put(longest[l - 1].head);
    tails.put(longest[l - 1].tail);
    if (l < machines) continue;
    double before = 0;
    double after = 0;
    for (std::size_t k = 1; k <= machines; ++k) {
      before += heads[k - 1];
      after += tails[k - 1];
      const std::size_t at_least = k * (l / machines) + std::min(k, l % machines);
      const double body = sums[l] - sums[l - at_least];
      const double around = std::max(before, sum_for(edges.before, k)) + std::max(after, sum_for(edges.after, k));
      bound = std::max(bound, (around + body) / static_cast<double>(k));
    }
  }
  return bound;
}

double preemptive_schrage(std::vector<BoundedJob> jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.head < b.head; });
  std::priority_queue<std::pair<double, double>> ready;  // tail, what is left of the body
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
