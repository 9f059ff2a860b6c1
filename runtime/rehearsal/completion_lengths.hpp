// SPDX-License-Identifier: Apache-2.0
// Lengths of completions that are not made yet, for rehearsals. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace maestro {

/// Figures of the lengths of completions, in tokens.
struct LengthFigures {
  double mean = 0;
  double p50 = 0;  ///< median
  double p95 = 0;  ///< 95th percentile
  double max = 0;
};

class CompletionLengths {
 public:
  /// Every completion has the most tokens that it may have.
  CompletionLengths() = default;
  /// The lengths between figures are interpolated linearly, and the shortest is chosen so that they have the mean, if
  /// some length from 1 to the median does. `origin`: their source, for people.
  CompletionLengths(const LengthFigures& figures, std::string origin);
  /// Returns the lengths of a step's samples, evenly spaced quantiles in an order of the seed, each at most its entry
  /// of `most`.
  [[nodiscard]] std::vector<std::int64_t> draw(std::vector<std::int64_t> most, std::uint64_t seed) const;
  /// Returns the source; empty: the limit.
  [[nodiscard]] const std::string& origin() const { return origin_; }

 private:
  [[nodiscard]] double quantile(double share) const;

  std::array<double, 4> lengths_{};  // the shortest, the median, the 95th percentile and the longest
  std::string origin_;
};

}  // namespace maestro
