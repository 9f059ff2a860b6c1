// SPDX-License-Identifier: Apache-2.0
#include "runtime/estimate/virtual_clock.hpp"

#include <algorithm>

namespace maestro {

void VirtualClock::after(double ms, Event event) {
  due_.push_back({now_ms_ + (ms > 0 ? ms : 0), added_++, std::move(event)});
  std::ranges::push_heap(due_, later);
}

bool VirtualClock::next() {
  if (due_.empty()) return false;
  std::ranges::pop_heap(due_, later);
  const Due due = std::move(due_.back());
  due_.pop_back();
  now_ms_ = due.at_ms;
  due.event();
  return true;
}

}  // namespace maestro
