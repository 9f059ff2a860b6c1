// SPDX-License-Identifier: Apache-2.0
// Predicts the time of a generator's work from measurements. A block of a prompt takes a constant time, and a time for
// each token; both are fitted by least squares. A decode step takes a time for its number of sequences, and a time for
// each row that the sequences have kept (attention). The second is fitted by least squares to the steps with the fewest
// sequences. The first is interpolated linearly between measured numbers of sequences. Few sequences are bound by
// reading the weights, and many by arithmetic; so the time is convex, and the interpolation is an upper bound. Pure;
// not thread-safe.
//
// MA-1 (as measured): on points of such lines, the times are the points.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "runtime/rehearsal/pass_fit.hpp"

namespace maestro {

class GenerationCosts {
 public:
  /// Adds a block of `rows` tokens of a prompt that took `ms`.
  void add_prefill(std::int64_t rows, double ms) { prefill_.add(static_cast<double>(rows), ms); }
  /// Adds a decode step of `sequences` sequences with `rows` kept rows together.
  void add_decode(std::int64_t sequences, std::int64_t rows, double ms);
  /// Returns whether both were measured.
  [[nodiscard]] bool complete() const { return !prefill_.empty() && !decode_.empty(); }
  /// Returns the milliseconds of a block of a prompt; 0 if none was measured.
  [[nodiscard]] double prefill(std::int64_t rows) const { return prefill_.ms(static_cast<double>(rows)); }
  /// Returns the milliseconds of a decode step; 0 if none was measured. Above the largest measured number of sequences
  /// the time grows with the number; below the smallest it is the smallest's.
  [[nodiscard]] double decode(std::int64_t sequences, std::int64_t rows) const;

 private:
  void fit() const;

  PassFit prefill_;
  std::map<std::int64_t, std::vector<std::pair<double, double>>> decode_;  // rows and ms, by sequences
  mutable double of_row_ = 0;
  mutable std::map<std::int64_t, double> without_rows_;  // by sequences; empty: not fitted
};

}  // namespace maestro
