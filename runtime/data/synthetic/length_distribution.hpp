// SPDX-License-Identifier: Apache-2.0
// The lengths of generated samples, drawn by the inverse of a survival function.
//
// LQ-1 (points hold): among many draws, each point's share has at least the point's length. Between two points, log
//       share is linear in log length. The share of the last point has exactly its length.
#pragma once

#include "runtime/job/length_points.hpp"

namespace maestro {

/// Immutable.
class LengthDistribution {
 public:
  /// `longest`: longer lengths are cut to it; 0: no limit. Throws JobError if the points are out of order, or if the
  /// least length is below two tokens.
  LengthDistribution(LengthPoints points, std::int64_t longest);

  /// Returns the length in tokens that this share of all samples reaches; `share` in (0, 1].
  [[nodiscard]] std::int64_t at(double share) const;
  /// Returns the shortest length of a draw, in tokens.
  [[nodiscard]] std::int64_t least() const { return cut(points_.front().length); }
  /// Returns the longest length of a draw, in tokens.
  [[nodiscard]] std::int64_t most() const { return cut(points_.back().length); }
  /// Returns the points and the longest length as text; texts are equal only for equal distributions.
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] std::int64_t cut(std::int64_t length) const;

  LengthPoints points_;
  std::int64_t longest_;
};

}  // namespace maestro
