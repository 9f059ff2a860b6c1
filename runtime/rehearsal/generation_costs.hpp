// SPDX-License-Identifier: Apache-2.0
// The time of a generator's work, from measurements. A block of a prompt takes a constant and a time for each token, by
// least squares. A decode step of a measured number of sequences takes a constant and a time for each kept row of a
// sequence (attention), by least squares; the time of a number in between is interpolated linearly: few sequences share
// the reading of the weights, and many are bound by arithmetic, so that the time is convex, and the interpolation is
// not below it. Pure; not thread-safe.
//
// MA-1 (as measured): on points of such lines, the times are the points.
#pragma once

#include <cstdint>
#include <map>

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
  /// Returns the milliseconds of a decode step; 0 if none was measured. Beyond the largest measured number of sequences
  /// the time grows with the number, and below the smallest it is that of the smallest.
  [[nodiscard]] double decode(std::int64_t sequences, std::int64_t rows) const;

 private:
  PassFit prefill_;
  std::map<std::int64_t, PassFit> decode_;  // by sequences, of the rows of one
};

}  // namespace maestro
