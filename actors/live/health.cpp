// SPDX-License-Identifier: Apache-2.0
#include "actors/live/health.hpp"

#include <algorithm>
#include <cstdio>

namespace maestro {
namespace {

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f s", value);
  return text;
}

}  // namespace

std::string name_of(RunState state) {
  static constexpr const char* names[] = {"starting", "running", "pausing", "paused", "stopping", "finished"};
  return names[static_cast<std::size_t>(state)];
}

HealthJudge::Verdict HealthJudge::judge(const RunStatus& run, std::uint64_t events, Clock::time_point now) {
  const bool waits =
      run.state == RunState::starting || run.state == RunState::paused || run.state == RunState::finished;
  if (events_ != events || waits) progressed_ = now;
  events_ = events;
  const std::string at = name_of(run.state) + ", step " + std::to_string(run.last_step);
  if (waits || !run.figures.last_end || stall_timeout_s_ <= 0) return {true, at};
  const auto last = std::max(progressed_, *run.figures.last_end);
  const double silent_s = std::chrono::duration<double>(now - last).count();
  const double limit_s = std::max(6 * stall_timeout_s_, 4 * run.figures.longest_s);
  if (silent_s <= limit_s) return {true, at};
  return {false,
          at + ": no step or other event has ended for " + seconds(silent_s) + " (limit " + seconds(limit_s) + ")"};
}

}  // namespace maestro
