// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/curve.hpp"

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

}  // namespace maestro
