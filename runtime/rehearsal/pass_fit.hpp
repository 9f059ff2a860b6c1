// SPDX-License-Identifier: Apache-2.0
// How long a pass takes by its work: a constant and a rate, by least squares over measured passes. Pure.
//
// FI-1 (own data): points on a line a + b * units with a, b >= 0 give that line.
// FI-2 (never negative): whatever the points, no estimate is below 0.
#pragma once

#include <utility>
#include <vector>

namespace maestro {

class PassFit {
 public:
  /// A pass of `units` > 0 took `ms`; others are left out.
  void add(double units, double ms);
  [[nodiscard]] bool empty() const { return points_.empty(); }
  /// Returns the estimate; 0 without points. Points that took three times as long as usual by their units are left out,
  /// and where all have the same units the constant is 0.
  [[nodiscard]] double ms(double units) const;

 private:
  void fit() const;
  std::vector<std::pair<double, double>> points_;  // units, ms
  mutable bool fitted_ = false;
  mutable double constant_ = 0;
  mutable double rate_ = 0;
};

}  // namespace maestro
