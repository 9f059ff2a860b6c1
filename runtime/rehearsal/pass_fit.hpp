// SPDX-License-Identifier: Apache-2.0
// Estimates the time of a pass from its work: a constant and a rate, by least squares over measured passes. Pure.
//
// FI-1 (own data): points on a line a + b * units with a, b >= 0 result in that line.
// FI-2 (never negative): no estimate is below 0, for any points.
#pragma once

#include <utility>
#include <vector>

namespace maestro {

class PassFit {
 public:
  /// Adds a pass of `units` > 0 that took `ms`; passes with other units are ignored.
  void add(double units, double ms);
  [[nodiscard]] bool empty() const { return points_.empty(); }
  /// Returns the estimate; 0 without points. Points that took over three times the usual time for their units are left
  /// out. If all points have the same units, the constant is 0.
  [[nodiscard]] double ms(double units) const;

 private:
  void fit() const;
  std::vector<std::pair<double, double>> points_;  // units, ms
  mutable bool fitted_ = false;
  mutable double constant_ = 0;
  mutable double rate_ = 0;
};

}  // namespace maestro
