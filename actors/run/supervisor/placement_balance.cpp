// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/placement_balance.hpp"

namespace maestro {

PlacementDecision PlacementBalance::look(double waiting, double idle) {
  waiting_ += waiting;
  idle_ += idle;
  if (++looks_ < window) return PlacementDecision::keep;
  last_waiting_ = waiting_ / window;
  last_idle_ = idle_ / window;
  moved();
  return decide();
}

PlacementDecision PlacementBalance::decide() {
  if (last_waiting_ > most_waiting) {
    idle_windows_ = 0;
    if (gave_back_) patience_ *= 2;  // EB-3
    gave_back_ = false;
    return last_idle_ > most_idle ? PlacementDecision::keep : PlacementDecision::one_more;
  }
  if (last_idle_ <= most_idle) {
    idle_windows_ = 0;
    return PlacementDecision::keep;
  }
  if (++idle_windows_ < patience_) return PlacementDecision::keep;
  idle_windows_ = 0;
  gave_back_ = true;
  return PlacementDecision::one_less;
}

void PlacementBalance::moved() {
  looks_ = 0;
  waiting_ = idle_ = 0;
}

}  // namespace maestro
