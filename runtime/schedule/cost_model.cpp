// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/cost_model.hpp"

namespace maestro {

namespace {
constexpr double weight_of_new = 1.0 / 8;
}

CostModel::CostModel(SampleCost cost, double unit_per_ms) : cost_(std::move(cost)), default_rate_(1 / unit_per_ms) {}

PassCost CostModel::units(SectionId section, std::span<const SampleRef> samples) const {
  PassCost sum;
  for (const SampleRef& sample : samples) {
    const PassCost one = cost_ ? cost_(section, sample) : PassCost{static_cast<double>(sample.tokens), 0};
    sum.forward += one.forward;
    sum.backward += one.backward;
  }
  return sum;
}

CostModel::Rate& CostModel::rate(SectionId section) {
  if (rates_.size() <= section.value()) rates_.resize(section.value() + 1);
  return rates_[section.value()];
}

PassCost CostModel::of(SectionId section, std::span<const SampleRef> samples) const {
  const Rate known = section.value() < rates_.size() ? rates_[section.value()] : Rate();
  const PassCost work = units(section, samples);
  const auto ms = [&](double units, double rate) { return units * (rate > 0 ? rate : default_rate_); };
  return {ms(work.forward, known.forward), ms(work.backward, known.backward)};
}

void CostModel::measured(const MeasuredPass& pass) {
  const PassCost work = units(pass.section, pass.samples);
  const double amount = pass.backward ? work.backward : work.forward;
  if (amount <= 0 || pass.ms <= 0) return;
  double& known = pass.backward ? rate(pass.section).backward : rate(pass.section).forward;
  known = known > 0 ? known + weight_of_new * (pass.ms / amount - known) : pass.ms / amount;
}

}  // namespace maestro
