// SPDX-License-Identifier: Apache-2.0
#include "actors/run/seat_balance.hpp"

namespace maestro {

SeatDecision SeatBalance::look(double waiting, double idle) {
  waiting_ += waiting;
  idle_ += idle;
  if (++looks_ < window) return SeatDecision::keep;
  last_waiting_ = waiting_ / window;
  last_idle_ = idle_ / window;
  moved();
  return decide();
}

SeatDecision SeatBalance::decide() {
  if (last_waiting_ > most_waiting) {
    idle_windows_ = 0;
    if (gave_back_) patience_ *= 2;  // EB-3
    gave_back_ = false;
    return last_idle_ > most_idle ? SeatDecision::keep : SeatDecision::one_more;
  }
  if (last_idle_ <= most_idle) {
    idle_windows_ = 0;
    return SeatDecision::keep;
  }
  if (++idle_windows_ < patience_) return SeatDecision::keep;
  idle_windows_ = 0;
  gave_back_ = true;
  return SeatDecision::one_less;
}

void SeatBalance::moved() {
  looks_ = 0;
  waiting_ = idle_ = 0;
}

}  // namespace maestro
