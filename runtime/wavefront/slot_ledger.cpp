// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/slot_ledger.hpp"

#include <algorithm>

namespace maestro {

namespace {

constexpr double always = -1;  // before every time of a schedule

}  // namespace

void SlotLedger::reset(int lanes, int slots) {
  slots_ = static_cast<std::size_t>(slots);
  const std::size_t units = static_cast<std::size_t>(lanes) * slots_;
  units_.assign(units, always);
  lane_free_.assign(static_cast<std::size_t>(lanes), slots);
  free_.assign(units, always);
  waiting_.clear();
  waiting_.reserve(units);
  promised_ = 0;
}

int SlotLedger::best_unit(int lane, double produced) const {
  const double* begin = units_.data() + first_of(lane);
  int unit = lane_free_[static_cast<std::size_t>(lane)] - 1;
  while (unit >= 0 && begin[unit] > produced) --unit;
  return unit;
}

bool SlotLedger::slack_within(double from, double to, int count) const {
  auto waiting = std::lower_bound(waiting_.begin(), waiting_.end(), from);
  if (waiting == waiting_.end() || *waiting >= to) return true;
  auto unit = std::upper_bound(free_.begin(), free_.end(), *waiting);
  for (; waiting != waiting_.end() && *waiting < to; ++waiting) {
    // Of equal times the last counts them all.
    if (waiting + 1 != waiting_.end() && *(waiting + 1) == *waiting) continue;
    while (unit != free_.end() && *unit <= *waiting) ++unit;
    if ((unit - free_.begin()) - (waiting - waiting_.begin() + 1) < count) return false;
  }
  return true;
}

bool SlotLedger::can_claim(int lane, double produced) const {
  const int unit = best_unit(lane, produced);
  return unit >= 0 && slack_within(units_[first_of(lane) + static_cast<std::size_t>(unit)], produced, 1);
}

void SlotLedger::remove_unit(int lane, int unit) {
  double* begin = units_.data() + first_of(lane);
  free_.erase(std::lower_bound(free_.begin(), free_.end(), begin[unit]));
  int& count = lane_free_[static_cast<std::size_t>(lane)];
  std::copy(begin + unit + 1, begin + count, begin + unit);
  --count;
}

void SlotLedger::claim(int lane, double produced, double now) {
  static_cast<void>(set_aside(lane, produced));
  release(lane, 1, now);
}

double SlotLedger::set_aside(int lane, double produced) {
  const int place = best_unit(lane, produced);
  const double unit = units_[first_of(lane) + static_cast<std::size_t>(place)];
  remove_unit(lane, place);
  waiting_.erase(std::lower_bound(waiting_.begin(), waiting_.end(), produced));
  return unit;
}

void SlotLedger::put_back(int lane, double produced, double unit) {
  cancel(lane, 1, &unit);
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), produced), produced);
}

bool SlotLedger::can_reserve(int lane, int count) const {
  const int units = lane_free_[static_cast<std::size_t>(lane)];
  if (units < count || spare() < count) return false;
  const double oldest = units_[first_of(lane) + static_cast<std::size_t>(units - count)];
  return waiting_.empty() || slack_within(oldest, waiting_.back() + 1, count);
}

void SlotLedger::reserve(int lane, int count, double* units) {
  // The units that have been free for the shortest time are of least use to waiting inputs.
  for (int n = 0; n < count; ++n) {
    const int last = lane_free_[static_cast<std::size_t>(lane)] - 1;
    units[n] = units_[first_of(lane) + static_cast<std::size_t>(last)];
    remove_unit(lane, last);
  }
}

void SlotLedger::cancel(int lane, int count, const double* units) {
  double* begin = units_.data() + first_of(lane);
  int& free = lane_free_[static_cast<std::size_t>(lane)];
  for (int n = 0; n < count; ++n) {
    double* place = std::upper_bound(begin, begin + free, units[n]);
    std::copy_backward(place, begin + free, begin + free + 1);
    *place = units[n];
    ++free;
    free_.insert(std::upper_bound(free_.begin(), free_.end(), units[n]), units[n]);
  }
}

void SlotLedger::release(int lane, int count, double now) {
  double* begin = units_.data() + first_of(lane);
  for (int n = 0; n < count; ++n) {
    begin[lane_free_[static_cast<std::size_t>(lane)]++] = now;
    free_.push_back(now);
  }
}

bool SlotLedger::can_take(int taker, int count, double produced, const double* units) const {
  const int last = best_unit(taker, produced);
  if (last + 1 < count) return false;
  const double oldest = units_[first_of(taker) + static_cast<std::size_t>(last + 1 - count)];
  return slack_within(oldest, *std::max_element(units, units + count), count);
}

void SlotLedger::take(int taker, int count, double produced, double now) {
  for (int n = 0; n < count; ++n) remove_unit(taker, best_unit(taker, produced));
  release(taker, count, now);
}

}  // namespace maestro
