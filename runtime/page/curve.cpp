// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/curve.hpp"

#include <cmath>

namespace maestro {

namespace {

CurvePoint joined(const CurvePoint& first, const CurvePoint& second) {
  return {first.first_step,
          second.last_step,
          first.count + second.count,
          first.sum + second.sum,
          std::min(first.low, second.low),
          std::max(first.high, second.high)};
}

double middle(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace

std::vector<CurvePoint> thinned(const std::vector<CurvePoint>& points, std::size_t most) {
  most = std::max<std::size_t>(most, 1);
  const std::size_t group = std::max<std::size_t>((points.size() + most - 1) / most, 1);
  std::vector<CurvePoint> out;
  for (std::size_t at = 0; at < points.size(); ++at) {
    if (at % group == 0) {
      out.push_back(points[at]);
    } else {
      out.back() = joined(out.back(), points[at]);
    }
  }
  return out;
}

void ThinnedCurve::add(std::uint64_t step, double value) {
  const CurvePoint point{step, step, 1, value, value, value};
  if (!points_.empty() && points_.back().count < width_) {
    points_.back() = joined(points_.back(), point);
    return;
  }
  if (points_.size() == most_) {
    points_ = thinned(points_, (most_ + 1) / 2);
    width_ *= 2;
    if (points_.back().count < width_) return add(step, value);
  }
  points_.push_back(point);
}

std::optional<SpikeBound> SpikeWatch::add(double value) {
  std::optional<SpikeBound> found;
  if (sorted_.size() >= least && value > middle(sorted_)) {
    const double median = middle(sorted_);
    const double bound = median + std::max(deviations * 1.4826 * median_deviation(median), share * std::abs(median));
    if (value > bound) found = SpikeBound{median, bound};
  }
  if (before_.size() == window) {
    sorted_.erase(std::ranges::lower_bound(sorted_, before_.front()));
    before_.pop_front();
  }
  before_.push_back(value);
  sorted_.insert(std::ranges::lower_bound(sorted_, value), value);
  return found;
}

double SpikeWatch::median_deviation(double median) const {
  std::vector<double> distances;
  distances.reserve(sorted_.size());
  for (const double value : sorted_) distances.push_back(std::abs(value - median));
  std::ranges::sort(distances);
  return middle(distances);
}

}  // namespace maestro
