// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/device_turns.hpp"

#include <algorithm>

namespace maestro {

void DeviceTurns::begin(Start start) {
  std::unique_lock lock(mutex_);
  if (stopped_) return;
  starts_.push_back(std::move(start));
  run_starts(std::move(lock));
}

void DeviceTurns::offer(Unit unit, const std::vector<DeviceTurn>& turns, Start start) {
  std::unique_lock lock(mutex_);
  if (stopped_) return;
  if (open_) {
    starts_.push_back(std::move(start));
    return run_starts(std::move(lock));
  }
  const auto made = std::make_shared<Offer>(Offer{unit, turns, std::move(start)});
  for (const DeviceTurn& turn : turns) {
    auto& offered = lines_[turn.device].offered;
    offered.insert(std::ranges::upper_bound(offered, unit, {}, &Offer::unit), made);
  }
  if (may_begin(*made)) this->start(made);
  run_starts(std::move(lock));
}

void DeviceTurns::ended(std::uint32_t device) {
  std::unique_lock lock(mutex_);
  if (open_) return;
  Line& line = lines_[device];
  line.running = false;
  const auto next = std::ranges::find_if(line.offered, [this](const auto& offer) { return may_begin(*offer); });
  if (next != line.offered.end()) start(*next);
  run_starts(std::move(lock));
}

bool DeviceTurns::due(const Offer& offer) const {
  return std::ranges::all_of(offer.turns, [&](const DeviceTurn& turn) {
    const auto& next = lines_.at(turn.device).next;
    const auto found = next.find(offer.unit);
    return turn.place == (found == next.end() ? 0 : found->second);
  });
}

bool DeviceTurns::may_begin(const Offer& offer) const {
  return due(offer) && std::ranges::all_of(offer.turns, [&](const DeviceTurn& turn) {
           const Line& line = lines_.at(turn.device);
           const auto goes_first = [&](const auto& other) { return other->unit < offer.unit && due(*other); };
           return !line.running && std::ranges::none_of(line.offered, goes_first);
         });
}

void DeviceTurns::start(const std::shared_ptr<Offer>& given) {
  const std::shared_ptr<Offer> offer = given;  // the list that holds it changes
  for (const DeviceTurn& turn : offer->turns) {
    Line& line = lines_[turn.device];
    line.running = true;
    std::erase(line.offered, offer);
    if (turn.last) {
      line.next.erase(offer->unit);
    } else {
      ++line.next[offer->unit];
    }
  }
  starts_.push_back(std::move(offer->start));
}

void DeviceTurns::open() {
  std::unique_lock lock(mutex_);
  open_ = true;
  for (auto& [device, line] : lines_) {
    while (!line.offered.empty()) start(line.offered.front());  // also leaves the lines of its other devices
  }
  lines_.clear();
  run_starts(std::move(lock));
}

void DeviceTurns::run_starts(std::unique_lock<std::mutex> lock) {
  if (starting_) return;
  starting_ = true;
  while (!starts_.empty() && !stopped_) {
    Start start = std::move(starts_.front());
    starts_.pop_front();
    lock.unlock();
    start();
    start = nullptr;  // may hold the last reference to an actor
    lock.lock();
  }
  starting_ = false;
}

void DeviceTurns::stop() {
  std::map<std::uint32_t, Line> lines;  // dropped without the lock: a start may hold the last reference to an actor
  std::deque<Start> starts;
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  lines.swap(lines_);
  starts.swap(starts_);
}

}  // namespace maestro
