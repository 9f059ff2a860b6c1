#include "runtime/schedule/replica_lane.hpp"

#include <cassert>

namespace maestro {

bool ReplicaLane::here(const MicroBatchPlan& batch, bool gradients) const {
  for (const ArrivalPlan& arrival : batch.arrivals) {
    if (arrival.gradient != gradients) continue;
    if (arrived_.count({arrival.edge, arrival.gradient, arrival.sequence}) == 0) return false;
  }
  return true;
}

std::optional<ReplicaLane::Work> ReplicaLane::start(Kind kind, Item& item) {
  running_ = kind;
  running_item_ = &item;
  return Work{kind, &item.batch, item.mark.value_or(LaneMark{})};
}

std::optional<ReplicaLane::Work> ReplicaLane::next(BuffersFree free) {
  if (busy() || items_.empty()) return std::nullopt;
  Item& oldest = items_.front();
  if (oldest.forwarded && free.gradients && here(oldest.batch, true)) return start(Kind::backward, oldest);  // RL-3
  for (Item& item : items_) {
    if (item.forwarded) continue;
    if (item.mark) {
      return &item == &oldest ? start(Kind::mark, item) : std::nullopt;  // RL-4
    }
    const bool room = in_flight_ < options_.max_in_flight;
    const bool together = options_.trained && item.batch.pass == Pass::train && !splits(item.batch);
    const bool buffers = free.outputs && (!together || free.gradients);
    if (!room || !buffers || !here(item.batch, false)) return std::nullopt;  // RL-1, RL-2
    return start(together ? Kind::forward_backward : Kind::forward, item);
  }
  return std::nullopt;
}

std::optional<MicroBatchPlan> ReplicaLane::finished() {
  assert(busy());
  const Kind kind = *running_;
  Item& item = *running_item_;
  running_.reset();
  running_item_ = nullptr;
  if (kind == Kind::forward && splits(item.batch)) {
    item.forwarded = true;
    ++in_flight_;
    return std::nullopt;
  }
  if (kind == Kind::backward) --in_flight_;
  assert(&item == &items_.front());
  std::optional<MicroBatchPlan> retired;
  if (kind != Kind::mark) retired = std::move(item.batch);
  items_.pop_front();
  if (retired) {
    for (const ArrivalPlan& arrival : retired->arrivals) {
      arrived_.erase({arrival.edge, arrival.gradient, arrival.sequence});
    }
  }
  return retired;
}

const MicroBatchPlan* ReplicaLane::waiting_batch() const {
  if (busy()) return nullptr;
  for (const Item& item : items_) {
    if (item.mark) return nullptr;
    if (!item.forwarded || !here(item.batch, true)) return &item.batch;
  }
  return nullptr;
}

const ArrivalPlan* ReplicaLane::missing_arrival() const {
  const MicroBatchPlan* batch = waiting_batch();
  if (batch == nullptr) return nullptr;
  for (const ArrivalPlan& arrival : batch->arrivals) {
    if (arrived_.count({arrival.edge, arrival.gradient, arrival.sequence}) == 0) return &arrival;
  }
  return nullptr;
}

}  // namespace maestro
