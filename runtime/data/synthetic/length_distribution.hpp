// SPDX-License-Identifier: Apache-2.0
// The lengths of generated samples, drawn by the inverse of a survival function.
//
// LQ-1 (points hold): of many draws, a point's share has at least its length; between two points the logarithm of the
//       share is linear in that of the length, and the last point's share has its length.
#pragma once

#include "runtime/job/length_points.hpp"

namespace maestro {

/// Immutable.
class LengthDistribution {
 public:
  /// `longest`: longer lengths are cut to it; 0: they are not. Throws JobError where the points are out of order, or
  /// the least length is below two tokens.
  LengthDistribution(LengthPoints points, std::int64_t longest);

  /// Returns the length that this share of all samples reaches, in tokens; `share` in (0, 1].
  [[nodiscard]] std::int64_t at(double share) const;
  /// Returns the least and the most tokens of a draw.
  [[nodiscard]] std::int64_t least() const { return cut(points_.front().length); }
  [[nodiscard]] std::int64_t most() const { return cut(points_.back().length); }
  /// Returns the points and the cut as text, equal for equal distributions only.
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] std::int64_t cut(std::int64_t length) const;

  LengthPoints points_;
  std::int64_t longest_;
};

}  // namespace maestro
