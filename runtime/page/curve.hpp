// SPDX-License-Identifier: Apache-2.0
// Curves of any length in bounded memory. Pure.
//
// CV-1 (bounded): a curve has at most `most` points, however many values are added.
// CV-2 (extremes): every value of a curve is in exactly one point, in order; a point has the lowest and the highest of
//       its values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace maestro {

/// Consecutive values of a curve.
struct CurvePoint {
  std::uint64_t first_step = 0;
  std::uint64_t last_step = 0;
  std::uint64_t count = 0;
  double sum = 0;
  double low = 0;
  double high = 0;
  [[nodiscard]] double mean() const { return sum / static_cast<double>(count); }
  [[nodiscard]] double step() const { return (static_cast<double>(first_step) + static_cast<double>(last_step)) / 2; }
};

/// Returns `points` as at most `most` points, at least one.
[[nodiscard]] std::vector<CurvePoint> thinned(const std::vector<CurvePoint>& points, std::size_t most);

class ThinnedCurve {
 public:
  explicit ThinnedCurve(std::size_t most = 600) : most_(std::max<std::size_t>(most, 2)) {}
  /// Adds a finite value; steps rise.
  void add(std::uint64_t step, double value);
  [[nodiscard]] const std::vector<CurvePoint>& points() const { return points_; }

 private:
  std::size_t most_;
  std::uint64_t width_ = 1;  // values of a point
  std::vector<CurvePoint> points_;
};

}  // namespace maestro
