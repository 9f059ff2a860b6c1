// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/step_figures.hpp"

#include <algorithm>
#include <utility>

namespace maestro {
namespace {

StepFigures::Clock::duration duration_of(double ms) {
  return std::chrono::duration_cast<StepFigures::Clock::duration>(std::chrono::duration<double, std::milli>(ms));
}

}  // namespace

LaneUse& LaneUse::operator+=(const LaneUse& more) {
  busy_ms += more.busy_ms;
  step_end_ms += more.step_end_ms;
  whole_ms += more.whole_ms;
  return *this;
}

StepFigures::StepFigures() {
  totals_.seconds = Histogram({0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 600});
}

void StepFigures::pass_done(const MicroBatchDone& done, Clock::time_point now) {
  if (done.pass != Pass::train) return;
  StepPasses& of_step = open_[done.step];
  of_step.step = done.step;
  if (of_step.passes.size() + 2 > kept_passes) {
    of_step.left_out += done.backward_ms > 0 ? 2 : 1;
    return;
  }
  const auto begin = now - duration_of(done.age_ms);
  of_step.passes.push_back(
      {done.section, done.replica, done.index, false, begin, begin + duration_of(done.forward_ms)});
  if (done.backward_ms <= 0) return;
  of_step.passes.push_back({done.section, done.replica, done.index, true, now - duration_of(done.backward_ms), now});
}

std::vector<MeasuredTransfer> measured_transfers(const LaneReports& lanes) {
  ChannelTimes sums;
  for (const auto& [lane, report] : lanes) {
    for (const auto& [channel, times] : report.transfers) sums[channel] += times;
  }
  std::vector<MeasuredTransfer> measured;
  for (const auto& [channel, sum] : sums) measured.push_back({channel, sum.sum_ms / static_cast<double>(sum.pieces)});
  return measured;
}

void StepFigures::lanes_ended(const LaneReports& lanes, bool trained) {
  for (const auto& [lane, report] : lanes) {
    LaneReport& sum = totals_.lanes[lane];
    sum.times.busy_ms += report.times.busy_ms;
    sum.times.step_end_ms += report.times.step_end_ms;
    for (const auto& [on, ms] : report.times.wait_ms) sum.times.wait_ms[on] += ms;
    for (const auto& [channel, bytes] : report.sent) sum.sent[channel] += bytes;
    for (const auto& [channel, times] : report.transfers) sum.transfers[channel] += times;
  }
  if (trained) add_use(lanes);
}

void StepFigures::add_use(const LaneReports& lanes) {
  if (newest_steps_ == use_steps) {
    earlier_use_ = std::exchange(newest_use_, {});
    newest_steps_ = 0;
  }
  ++newest_steps_;
  for (const auto& [lane, report] : lanes) {
    newest_use_[lane] += {report.times.busy_ms, report.times.step_end_ms, whole_ms(report.times)};
  }
  totals_.recent_use = earlier_use_;
  for (const auto& [lane, use] : newest_use_) totals_.recent_use[lane] += use;
}

void StepFigures::step_measured(MeasuredStep step) {
  measured_.erase_if([&](const MeasuredStep& earlier) { return earlier.step >= step.step; });
  measured_.push_back(std::move(step));
}

void StepFigures::step_ended(StepId step, double seconds, const StepSamples& counts, Clock::time_point now,
                             std::chrono::system_clock::time_point time) {
  totals_.seconds.observe(seconds);
  totals_.longest_s = std::max(totals_.longest_s, seconds);
  totals_.samples += counts.trained;
  totals_.tokens += counts.tokens;
  totals_.last_end = now;
  totals_.last_end_time = time;
  const auto found = open_.find(step);
  if (found == open_.end()) return;
  totals_.recent.push_back(std::make_shared<const StepPasses>(std::move(found->second)));
  if (totals_.recent.size() > kept_steps) totals_.recent.erase(totals_.recent.begin());
  open_.erase(open_.begin(), std::next(found));
}

}  // namespace maestro
