// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/sample_counts.hpp"

#include <algorithm>

namespace maestro {

namespace {

constexpr std::uint64_t recent = 64;      // steps that are never summed up
constexpr std::size_t most_marks = 1024;  // marks of the newest checkpoints

void add(StepSamples& sum, const StepSamples& counts) {
  sum.read += counts.read;
  sum.trained += counts.trained;
  sum.tokens += counts.tokens;
}

}  // namespace

StepSamples SampleCounts::sum_until(std::uint64_t step) const {
  StepSamples sum = settled_;
  for (auto counts = steps_.begin(); counts != steps_.end() && counts->first <= step; ++counts)
    add(sum, counts->second);
  return sum;
}

void SampleCounts::settle(std::uint64_t step) {
  std::uint64_t until = step - std::min(step, recent);
  if (partly_ > 0) until = std::min(until, partly_);
  if (until <= settled_until_) return;
  settled_ = sum_until(until);
  settled_until_ = until;
  steps_.erase(steps_.begin(), steps_.upper_bound(until));
}

void SampleCounts::mark(std::uint64_t step) {
  marks_[step] = sum_until(step);
  if (marks_.size() > most_marks) marks_.erase(marks_.begin());
  if (step > partly_) partly_ = 0;
}

void SampleCounts::go_back(std::uint64_t step, std::uint64_t until) {
  if (step < settled_until_) {
    const auto mark = marks_.find(step);
    settled_ = mark == marks_.end() ? StepSamples() : mark->second;
    settled_until_ = step;
  }
  marks_.erase(marks_.upper_bound(step), marks_.end());
  steps_.erase(steps_.upper_bound(std::max(step, until)), steps_.end());
  for (auto after = steps_.upper_bound(step); after != steps_.end(); ++after)
    after->second = {0, after->second.trained, 0};
  partly_ = until > step ? step : 0;
}

StepSamples SampleCounts::totals(std::uint64_t last_step) const {
  StepSamples sum = settled_;
  for (const auto& [step, counts] : steps_)
    add(sum, {counts.read, counts.trained, step <= last_step ? counts.tokens : 0});
  return sum;
}

}  // namespace maestro
