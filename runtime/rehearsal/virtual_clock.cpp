// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/virtual_clock.hpp"

#include <algorithm>

namespace maestro {

void VirtualClock::after(double ms, Event event) {
  due_.push_back({now_ms_ + (ms > 0 ? ms : 0), added_++, events_.put(std::move(event))});
  std::ranges::push_heap(due_, later);
}

bool VirtualClock::next() {
  if (due_.empty()) return false;
  std::ranges::pop_heap(due_, later);
  const Due due = due_.back();
  due_.pop_back();
  now_ms_ = due.at_ms;
  const Event event = events_.take(due.event);
  event();
  return true;
}

}  // namespace maestro
