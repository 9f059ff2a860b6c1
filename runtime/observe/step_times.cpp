// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/step_times.hpp"

#include <cmath>
#include <vector>

#include "runtime/core/quantile.hpp"

namespace maestro {

namespace {

double median_of(const std::deque<double>& values) {
  return quantile_of(std::vector<double>(values.begin(), values.end()), 0.5);
}

}  // namespace

void StepTimes::add(double step_ms, double lower_bound_ms) {
  if (!std::isfinite(step_ms) || !std::isfinite(lower_bound_ms) || step_ms <= 0 || lower_bound_ms <= 0) return;
  steps_ms_.push_back(step_ms);
  bounds_ms_.push_back(lower_bound_ms);
  if (steps_ms_.size() <= most) return;
  steps_ms_.pop_front();
  bounds_ms_.pop_front();
}

std::optional<SteadyStep> StepTimes::steady() const {
  if (steps_ms_.empty()) return std::nullopt;
  return SteadyStep{median_of(steps_ms_), median_of(bounds_ms_), steps_ms_.size()};
}

}  // namespace maestro
