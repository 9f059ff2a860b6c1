// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/value_window.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/core/quantile.hpp"

namespace maestro {

namespace {

constexpr double deviations_of_mad = 1.4826;  // of a normal distribution
constexpr std::size_t least_judged = 8;

}  // namespace

void ValueWindow::add(double value) {
  values_.push_back(value);
  if (values_.size() > most_) values_.pop_front();
}

bool ValueWindow::judges() const {
  return values_.size() >= std::max(least_judged, most_ / 4);
}

double ValueWindow::median() const {
  return quantile_of({values_.begin(), values_.end()}, 0.5);
}

double ValueWindow::deviation(double median) const {
  std::vector<double> distances;
  distances.reserve(values_.size());
  for (const double value : values_) distances.push_back(std::abs(value - median));
  return deviations_of_mad * quantile_of(std::move(distances), 0.5);
}

}  // namespace maestro
