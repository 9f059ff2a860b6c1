// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/run_schedule.hpp"

#include <algorithm>
#include <utility>

namespace maestro {

RunSchedule::RunSchedule(const RunScheduleOptions& options)
    : options_(options), next_step_(options.first_step), checkpointed_(options.first_step - 1) {
  // A run resumed at its end still validates, so that its report is complete.
  if (options_.owed) {
    pending_.assign(options_.owed->begin(), options_.owed->end());
  } else if (next_step_ > options_.steps && options_.validate_at_end) {
    pending_.push_back({RunUnit::Kind::validate, StepId(next_step_ - 1)});
  }
}

std::optional<RunUnit> RunSchedule::next() {
  if (requested_) return std::exchange(requested_, std::nullopt);
  if (paused_) return std::nullopt;
  if (!pending_.empty()) {
    const RunUnit unit = pending_.front();
    pending_.pop_front();
    return unit;
  }
  if (stopped_ || next_step_ > options_.steps) return std::nullopt;
  if (options_.pause_after && next_step_ > *options_.pause_after) {
    pause();
    return std::nullopt;
  }
  const std::uint64_t step = next_step_++;
  checkpointed_before_ = checkpointed_;
  after_step(step, step == options_.steps);
  return RunUnit{RunUnit::Kind::train, StepId(step)};
}

void RunSchedule::after_step(std::uint64_t step, bool last) {
  const auto due = [&](std::uint64_t every) { return every > 0 && step % every == 0; };
  if (due(options_.validate_every) || (last && options_.validate_at_end)) {
    pending_.push_back({RunUnit::Kind::validate, StepId(step)});
  }
  if (due(options_.checkpoint_every) || due(options_.archive_every) || (last && options_.checkpoint_at_end)) {
    pending_.push_back({RunUnit::Kind::checkpoint, StepId(step)});
    checkpointed_ = step;
  } else if (due(options_.shadow_every) && !last && options_.keeps_state) {
    pending_.push_back({RunUnit::Kind::shadow, StepId(step)});
  }
}

bool RunSchedule::complete() const {
  return !requested_ && pending_.empty() && (stopped_ || next_step_ > options_.steps);
}

std::vector<RunUnit> RunSchedule::owed(StepId step) const {
  std::vector<RunUnit> units(pending_.begin(), pending_.end());
  if (requested_) units.push_back(*requested_);
  std::erase_if(units, [step](const RunUnit& unit) { return unit.step > step; });
  return units;
}

std::optional<StepId> RunSchedule::request_checkpoint() {
  const std::uint64_t last = last_step();
  if (!options_.keeps_state || last < options_.first_step) return std::nullopt;
  const auto due =
      std::ranges::find_if(pending_, [](const RunUnit& unit) { return unit.kind == RunUnit::Kind::checkpoint; });
  if (due != pending_.end()) {
    requested_ = *due;
    pending_.erase(due);
  } else if (checkpointed_ < last) {
    requested_ = RunUnit{RunUnit::Kind::checkpoint, StepId(last)};
    checkpointed_ = last;
  }
  return StepId(last);
}

void RunSchedule::withdraw() {
  const std::uint64_t step = --next_step_;
  std::erase_if(pending_, [step](const RunUnit& unit) { return unit.step == StepId(step); });
  checkpointed_ = checkpointed_before_;
}

void RunSchedule::stop() {
  if (stopped_) return;
  stopped_ = true;
  paused_ = false;
  std::deque<RunUnit> kept;
  for (const RunUnit& unit : pending_) {
    if (unit.kind == RunUnit::Kind::checkpoint) kept.push_back(unit);
  }
  pending_ = std::move(kept);
  const std::uint64_t last = last_step();
  if (options_.keeps_state && last >= options_.first_step && checkpointed_ < last) {
    pending_.push_back({RunUnit::Kind::checkpoint, StepId(last)});
    checkpointed_ = last;
  }
}

}  // namespace maestro
