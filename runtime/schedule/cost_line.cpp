// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/cost_line.hpp"

#include <algorithm>

namespace maestro {

namespace {

constexpr double weight_of_new = 1.0 / 8;
/// A pass that lasts longer than this times the expectation is left out of the fit.
constexpr double outlier = 1.5;
constexpr double rise = 1 + weight_of_new * (outlier - 1);
/// Distance, in standard deviations of the units, up to which the line itself is the expectation.
constexpr double reach = 3;
/// Spread of units, as a share of the mean, that counts as rounding.
constexpr double no_spread = 1e-9;
/// Weight of noise around the line: a constant that explains as much is half believed (two of its standard deviations).
constexpr double doubt = 0.3;

}  // namespace

void CostLine::measured(double units, double ms) {
  if (!known()) {
    mean_units_ = units;
    mean_ms_ = ms;
    return;
  }
  const double more_units = units - mean_units_;
  const bool usual = more_units * more_units <= reach * reach * variance_units_;
  // Any line with a >= 0 and b >= 0 through the mean is below the larger of a constant and a proportion.
  const double expected_ms = usual ? line().ms(units) : mean_ms_ * std::max(1.0, units / mean_units_);
  if (ms > outlier * expected_ms) {
    mean_ms_ *= rise;
    covariance_ *= rise;
    variance_ms_ *= rise * rise;
    return;
  }
  const double more_ms = ms - mean_ms_;
  const auto add = [](double& moment, double product) {
    moment = (1 - weight_of_new) * (moment + weight_of_new * product);
  };
  mean_units_ += weight_of_new * more_units;
  mean_ms_ += weight_of_new * more_ms;
  add(variance_units_, more_units * more_units);
  add(variance_ms_, more_ms * more_ms);
  add(covariance_, more_units * more_ms);
}

CostLine::Line CostLine::line() const {
  const double squares = variance_units_ + mean_units_ * mean_units_;
  const double spread = no_spread * mean_units_;
  if (variance_units_ <= spread * spread) return {0, mean_ms_ / mean_units_};
  const double slope = covariance_ / variance_units_;
  const double free_constant = mean_ms_ - slope * mean_units_;
  // Unlimited fit; a slope below 0 is raised to 0, at the price of the variance that it explains.
  const double price = slope < 0 ? slope * covariance_ : 0;
  const double gain = free_constant * free_constant * variance_units_ / squares - price;
  const double noise = std::max(variance_ms_ - slope * covariance_, 0.0) + price;
  const double constant = std::max(mean_ms_ - std::max(slope, 0.0) * mean_units_, 0.0);
  const double believed = gain > 0 ? constant * gain / (gain + doubt * noise) : 0;
  const double per_unit = (covariance_ + mean_units_ * (mean_ms_ - believed)) / squares;
  return {believed, std::max(per_unit, 0.0)};
}

}  // namespace maestro
