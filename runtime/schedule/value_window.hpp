// SPDX-License-Identifier: Apache-2.0
// The last values of a figure; the guard judges the next value by them. Pure.
#pragma once

#include <cstddef>
#include <deque>

namespace maestro {

/// Holds at most `most` values. Not thread-safe.
class ValueWindow {
 public:
  explicit ValueWindow(std::size_t most) : most_(most) {}
  void add(double value);
  void clear() { values_.clear(); }
  [[nodiscard]] bool empty() const { return values_.empty(); }
  /// Returns whether there are enough values to judge by: a quarter of `most`, and at least 8.
  [[nodiscard]] bool judges() const;
  /// Returns the upper median; there is at least one value.
  [[nodiscard]] double median() const;
  /// Returns the standard deviation of a normal distribution with the values' median absolute deviation from `median`.
  [[nodiscard]] double deviation(double median) const;

 private:
  std::size_t most_;
  std::deque<double> values_;
};

}  // namespace maestro
