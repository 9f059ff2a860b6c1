// SPDX-License-Identifier: Apache-2.0
// The time of a pass as a line over its units, a + b units, fitted to measured passes. Pure; not thread-safe.
//
// CF-1 (first measurement): after a single measurement, and while all passes have equal units, a is 0 and b the mean
//       time per unit.
// CF-2 (own data): a line fitted to values a + b units without noise, with different units, has this a and b.
// CF-3 (limits): a and b are never negative.
// CF-4 (single outlier): a pass that lasts longer than 1.5 times the line, or, with units unlike those of the passes
//       before, than 1.5 times any line through their mean, raises the line by a sixteenth and changes nothing
//       else.
#pragma once

namespace maestro {

/// Least squares over passes that are forgotten exponentially: a new pass has a weight of 1/8. The constant counts as
/// far as it explains more than noise would.
class CostLine {
 public:
  /// Takes a pass of `units` (above 0) that lasted `ms` (above 0).
  void measured(double units, double ms);
  [[nodiscard]] bool known() const { return mean_ms_ > 0; }

  struct Line {
    double constant_ms = 0;
    double ms_per_unit = 0;
    [[nodiscard]] double ms(double units) const { return constant_ms + ms_per_unit * units; }
  };
  /// Returns the line; known() must hold.
  [[nodiscard]] Line line() const;

 private:
  // Weighted over the passes so far.
  double mean_units_ = 0;
  double mean_ms_ = 0;
  double variance_units_ = 0;
  double variance_ms_ = 0;
  double covariance_ = 0;
};

}  // namespace maestro
