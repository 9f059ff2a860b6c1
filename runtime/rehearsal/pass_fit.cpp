// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/pass_fit.hpp"

#include <algorithm>

#include "runtime/core/quantile.hpp"

namespace maestro {

namespace {

constexpr double outlier = 3;          // times the usual time
constexpr double least_spread = 1e-3;  // relative spread of units; below it, constant and rate cannot be separated

struct Sums {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
};

}  // namespace

void PassFit::add(double units, double ms) {
  if (!(units > 0) || !(ms >= 0)) return;
  points_.emplace_back(units, ms);
  fitted_ = false;
}

void PassFit::fit() const {
  fitted_ = true;
  std::vector<double> rates;
  for (const auto& [units, ms] : points_) rates.push_back(ms / units);
  const double usual = quantile_of(std::move(rates), 0.5);
  Sums sum;
  for (const auto& [units, ms] : points_) {
    if (ms > outlier * usual * units) continue;
    sum = {sum.n + 1, sum.x + units, sum.y + ms, sum.xx + units * units, sum.xy + units * ms};
  }
  const double variance = sum.n * sum.xx - sum.x * sum.x;
  constant_ = 0;
  rate_ = sum.xx > 0 ? sum.xy / sum.xx : 0;
  if (variance <= least_spread * least_spread * sum.x * sum.x) return;
  const double rate = (sum.n * sum.xy - sum.x * sum.y) / variance;
  const double constant = (sum.y - rate * sum.x) / sum.n;
  if (constant < 0) return;  // use a line through 0
  constant_ = rate < 0 ? sum.y / sum.n : constant;
  rate_ = std::max(rate, 0.0);
}

double PassFit::ms(double units) const {
  if (points_.empty()) return 0;
  if (!fitted_) fit();
  return constant_ + rate_ * units;
}

}  // namespace maestro
