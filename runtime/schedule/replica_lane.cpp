// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/replica_lane.hpp"

#include <algorithm>
#include <cassert>

namespace maestro {

void ReplicaLane::enqueue(MicroBatchPlan plan) {
  items_.push_back({std::make_shared<const MicroBatchPlan>(std::move(plan)), std::nullopt, State::waiting});
}

void ReplicaLane::enqueue(StepBoundary mark) {
  items_.push_back({{}, std::move(mark), State::waiting});
}

void ReplicaLane::arrived(Channel channel, std::uint64_t sequence, LayoutRank rank) {
  const ArrivalKey key(channel, sequence, rank);
  const auto at = std::ranges::lower_bound(arrived_, key);
  if (at == arrived_.end() || *at != key) arrived_.insert(at, key);
}

void ReplicaLane::forget(const ArrivalPlan& arrival) {
  const auto [first, end] = std::equal_range(arrived_.begin(), arrived_.end(), key_of(arrival));
  arrived_.erase(first, end);
}

bool ReplicaLane::here(const MicroBatchPlan& batch, Direction direction) const {
  for (const ArrivalPlan& arrival : batch.arrivals) {
    if (arrival.channel.direction == direction && !here(arrival)) return false;
  }
  return true;
}

bool ReplicaLane::open(const MicroBatchPlan& batch, std::uint32_t phase) const {
  if (phase == 0) return true;
  const auto found = phases_.find({batch.step.value(), batch.group});
  return found != phases_.end() && phase <= found->second;
}

std::optional<ReplicaLane::Work> ReplicaLane::start(Kind kind, Item& item) {
  running_ = kind;
  running_item_ = &item;
  return Work{kind, item.batch, item.mark.value_or(StepBoundary{})};
}

ReplicaLane::Item* ReplicaLane::next_forward(BuffersFree free) {
  for (Item& item : items_) {
    if (item.mark) return &item == &items_.front() ? &item : nullptr;  // RL-4
    if (item.state != State::waiting) continue;
    const bool room = in_flight_ < options_.max_in_flight;
    const MicroBatchPlan& batch = *item.batch;
    const bool together = options_.runs_backward && batch.pass == Pass::train && !splits(batch);
    const bool buffers = free.outputs && (!together || free.gradients);
    const bool may = room && buffers && here(batch, Direction::forward) && open(batch, batch.forward_phase);
    return may ? &item : nullptr;  // RL-1, RL-2
  }
  return nullptr;
}

std::optional<std::size_t> ReplicaLane::backward_turn() const {
  for (std::size_t at = 0; in_flight_ > 0 && at < items_.size(); ++at) {
    const Item& item = items_[at];
    if (item.mark || item.state == State::waiting) break;  // RL-1: no item after it has had its forward pass
    if (item.state == State::forwarded && item.batch->backward_order == backwards_) return at;
  }
  return std::nullopt;
}

ReplicaLane::Item* ReplicaLane::next_backward(BuffersFree free) {
  const std::optional<std::size_t> turn = backward_turn();
  if (!turn || !free.gradients) return nullptr;
  Item& item = items_[*turn];
  const bool may = here(*item.batch, Direction::gradient) && open(*item.batch, item.batch->backward_phase);
  return may ? &item : nullptr;  // RL-3
}

std::optional<ReplicaLane::Work> ReplicaLane::next(BuffersFree free) {
  if (busy() || items_.empty()) return std::nullopt;
  Item* backward = next_backward(free);
  Item* forward = next_forward(free);
  if (const auto turn = backward_turn(); turn && !items_[*turn].batch->backward_turns.empty()) {
    const bool backward_first = items_[*turn].batch->backward_after <= forwards_;  // RL-3: the plan's order
    (backward_first ? forward : backward) = nullptr;
  }
  if (backward != nullptr && (forward == nullptr || backward->batch->backward_after <= forwards_)) {
    return start(Kind::backward, *backward);
  }
  if (forward == nullptr) return std::nullopt;
  if (forward->mark) return start(Kind::mark, *forward);
  const MicroBatchPlan& batch = *forward->batch;
  const bool together = options_.runs_backward && batch.pass == Pass::train && !splits(batch);
  if (splits(batch)) ++forwards_;
  return start(together ? Kind::forward_backward : Kind::forward, *forward);
}

SharedMicroBatch ReplicaLane::finished() {
  assert(busy());
  const Kind kind = *running_;
  Item& item = *running_item_;
  running_.reset();
  running_item_ = nullptr;
  if (kind == Kind::forward && splits(*item.batch)) {
    item.state = State::forwarded;
    ++in_flight_;
    return nullptr;
  }
  item.state = State::retired;
  const SharedMicroBatch retired = item.batch;
  if (kind == Kind::mark) {
    forwards_ = backwards_ = 0;
    std::erase_if(phases_, [&](const auto& entry) { return entry.first.first <= item.mark->step.value(); });
  } else {
    if (kind == Kind::backward) --in_flight_, ++backwards_;
    for (const ArrivalPlan& arrival : retired->arrivals) forget(arrival);
  }
  retire_front();
  return retired;
}

void ReplicaLane::retire_front() {
  while (!items_.empty() && items_.front().state == State::retired) items_.pop_front();
}

const MicroBatchPlan* ReplicaLane::waiting_batch() const {
  if (busy()) return nullptr;
  if (const auto turn = backward_turn(); turn && !here(*items_[*turn].batch, Direction::gradient))
    return items_[*turn].batch.get();
  for (const Item& item : items_) {
    if (item.mark) return nullptr;
    if (item.state == State::waiting) return item.batch.get();
  }
  return nullptr;
}

const ArrivalPlan* ReplicaLane::missing_arrival() const {
  const MicroBatchPlan* batch = waiting_batch();
  if (batch == nullptr) return nullptr;
  for (const ArrivalPlan& arrival : batch->arrivals) {
    if (!here(arrival)) return &arrival;
  }
  return nullptr;
}

}  // namespace maestro
