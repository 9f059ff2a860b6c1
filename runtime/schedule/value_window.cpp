// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/value_window.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace maestro {

namespace {

constexpr double deviations_of_mad = 1.4826;  // of a normal distribution
constexpr std::size_t least_judged = 8;

/// Returns the upper median of values, of which there is at least one.
double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

void ValueWindow::add(double value) {
  values_.push_back(value);
  if (values_.size() > most_) values_.pop_front();
}

bool ValueWindow::judges() const {
  return values_.size() >= std::max(least_judged, most_ / 4);
}

double ValueWindow::median() const {
  return median_of({values_.begin(), values_.end()});
}

double ValueWindow::deviation(double median) const {
  std::vector<double> distances;
  distances.reserve(values_.size());
  for (const double value : values_) distances.push_back(std::abs(value - median));
  return deviations_of_mad * median_of(std::move(distances));
}

}  // namespace maestro
