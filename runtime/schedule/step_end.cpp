// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/step_end.hpp"

#include <algorithm>

namespace maestro {

StepEnd::StepEnd(const StepEndOptions& options, const StepBoundary& boundary) {
  publishes_ = options.publishes && boundary.pass == Pass::train;
  if (boundary.kind == StepBoundary::Kind::publish) {
    if (publishes_) actions_.push_back(StepAction::publish);
    return;
  }
  if (boundary.kind == StepBoundary::Kind::snapshot) {
    if (options.trained) add_snapshot(options);
    return;
  }
  if (options.trained && boundary.tokens > 0 && boundary.pass == Pass::train) add_step(options);
  if (publishes_) actions_.push_back(StepAction::publish);
  actions_.push_back(StepAction::report);
}

void StepEnd::add_step(const StepEndOptions& options) {
  if (options.ranks > 1 || options.fetches) actions_.push_back(StepAction::add_ranks);
  if (options.tied) actions_.push_back(StepAction::exchange_tie);
  const auto exchange = [&](StepAction action) {
    actions_.push_back(action);
    if (options.spreads) actions_.push_back(StepAction::spread);
  };
  exchange(options.optimizer_sharded ? StepAction::sum_to_shards : StepAction::sum);
  if (options.exchanges_rows) actions_.push_back(StepAction::merge_rows);
  if (options.timed_sum) actions_.push_back(StepAction::timed_sum);
  actions_.push_back(StepAction::norm);
  if (options.awaits_total || options.optimizer_sharded || options.exchanges_rows) {
    actions_.push_back(StepAction::await_total);
  }
  actions_.push_back(StepAction::step);
  if (options.optimizer_sharded) {
    exchange(StepAction::gather_values);
    actions_.push_back(StepAction::load_values);
  }
  if (options.exchanges_rows) actions_.push_back(StepAction::gather_rows);
}

void StepEnd::add_snapshot(const StepEndOptions& options) {
  const auto gather = [&](StepAction action, StepAction copy) {
    actions_.push_back(action);
    if (options.writes_snapshot) actions_.push_back(copy);
  };
  if (options.optimizer_sharded) {
    gather(StepAction::gather_first_moments, StepAction::copy_first_moments);
    gather(StepAction::gather_second_moments, StepAction::copy_second_moments);
  }
  if (options.writes_snapshot) actions_.push_back(StepAction::write);
  if (options.optimizer_sharded) actions_.push_back(StepAction::clear);
}

void StepEnd::skip_step() {
  actions_.resize(at_ + 1);
  actions_.push_back(StepAction::clear);
  if (publishes_) actions_.push_back(StepAction::publish);
  actions_.push_back(StepAction::report);
}

bool StepEnd::contains(StepAction action) const {
  return std::ranges::find(actions_, action) != actions_.end();
}

bool is_exchange(StepAction action) {
  switch (action) {
    case StepAction::exchange_tie:
    case StepAction::sum:
    case StepAction::sum_to_shards:
    case StepAction::merge_rows:
    case StepAction::gather_values:
    case StepAction::gather_rows:
    case StepAction::gather_first_moments:
    case StepAction::gather_second_moments:
      return true;
    default:
      return false;
  }
}

}  // namespace maestro
