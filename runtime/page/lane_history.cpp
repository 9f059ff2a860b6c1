// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/lane_history.hpp"

#include <functional>
#include <utility>

#include "runtime/page/markup.hpp"

namespace maestro {

namespace {
constexpr const char* device = "device";
}  // namespace

double LaneSpan::device_ms() const {
  const auto found = wait_ms.find(device);
  return found == wait_ms.end() ? 0 : found->second;
}

double LaneSpan::waited_ms() const {
  double sum = 0;
  for (const auto& [on, ms] : wait_ms) sum += on == device ? 0 : ms;
  return sum;
}

void LaneSpan::append(const LaneSpan& later) {
  last_step = later.last_step;
  busy_ms += later.busy_ms;
  step_end_ms += later.step_end_ms;
  for (const auto& [on, ms] : later.wait_ms) wait_ms[on] += ms;
}

std::string waits_text(const LaneSpan& span) {
  constexpr double least_share = 0.005;
  std::vector<std::pair<double, std::string>> shares;
  const double total = span.total_ms();
  for (const auto& [on, ms] : span.wait_ms) {
    if (on != device && total > 0 && ms / total >= least_share) shares.emplace_back(ms / total, on);
  }
  std::ranges::sort(shares, std::greater<>(), &std::pair<double, std::string>::first);
  std::string text;
  for (const auto& [share, on] : shares) text += (text.empty() ? "" : ", ") + on + " " + percent(share, 0);
  return text;
}

void LaneHistory::add(const LaneSpan& step) {
  if (!spans_.empty() && filled_ < width_) {
    spans_.back().append(step);
    ++filled_;
    return;
  }
  if (spans_.size() == most_) {
    for (std::size_t at = 0; at < most_ / 2; ++at) {
      LaneSpan both = std::move(spans_[2 * at]);
      both.append(spans_[2 * at + 1]);
      spans_[at] = std::move(both);
    }
    spans_.resize(most_ / 2);
    width_ *= 2;
  }
  spans_.push_back(step);
  filled_ = 1;
}

LaneSpan RunLane::total() const {
  LaneSpan sum = spans.empty() ? LaneSpan() : spans.front();
  for (std::size_t at = 1; at < spans.size(); ++at) sum.append(spans[at]);
  return sum;
}

}  // namespace maestro
