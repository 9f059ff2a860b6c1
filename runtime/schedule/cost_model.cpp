// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/cost_model.hpp"

#include <algorithm>
#include <cmath>

namespace maestro {

namespace {
constexpr double least_change_ms = 0.1;
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

PassCost CostModel::of(SectionId section, std::span<const SampleRef> samples) const {
  const Lines known = section.value() < lines_.size() ? lines_[section.value()] : Lines();
  const PassCost work = units(section, samples);
  const auto ms = [&](double units, const CostLine& line) {
    if (units <= 0) return 0.0;
    return line.known() ? line.line().ms(units) : units * default_rate_;
  };
  return {ms(work.forward, known.forward), ms(work.backward, known.backward)};
}

void CostModel::measured(const MeasuredPass& pass) {
  const PassCost work = units(pass.section, pass.samples);
  const double amount = pass.backward ? work.backward : work.forward;
  if (amount <= 0 || pass.ms <= 0) return;
  if (lines_.size() <= pass.section.value()) lines_.resize(pass.section.value() + 1);
  Lines& lines = lines_[pass.section.value()];
  (pass.backward ? lines.backward : lines.forward).measured(amount, pass.ms);
}

void CostModel::transferred(const MeasuredTransfer& transfer) {
  constexpr double weight_of_new = 1.0 / 8;
  const auto [found, fresh] = transfers_.try_emplace(transfer.channel, TransferTime{transfer.ms, 0});
  TransferTime& time = found->second;
  if (!fresh) time.mean_ms += weight_of_new * (transfer.ms - time.mean_ms);
  const double moved_ms = std::abs(time.mean_ms - time.planned_ms);
  if (moved_ms > least_change_ms && moved_ms > time.planned_ms / 4) time.planned_ms = time.mean_ms;
}

double CostModel::transfer_ms(EdgeId edge) const {
  double longest_ms = 0;
  for (const Direction direction : directions) {
    const auto found = transfers_.find({edge, direction});
    if (found != transfers_.end()) longest_ms = std::max(longest_ms, found->second.planned_ms);
  }
  return longest_ms;
}

}  // namespace maestro
