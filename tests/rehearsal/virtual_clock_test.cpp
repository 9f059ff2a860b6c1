// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/virtual_clock.hpp"

#include <gmock/gmock.h>

#include <limits>
#include <string>

namespace maestro {
namespace {

TEST(VirtualClock, events_happen_by_time_and_those_of_a_time_in_order_of_addition) {  // VC-1
  VirtualClock clock;
  std::string order;
  clock.after(2, [&] { order += 'c'; });
  clock.after(1, [&] {
    order += 'a';
    clock.after(1, [&] { order += 'd'; });
  });
  clock.after(1, [&] { order += 'b'; });
  while (clock.next()) {
  }
  EXPECT_EQ(order, "abcd");
  EXPECT_EQ(clock.now_ms(), 2);
}

TEST(VirtualClock, time_never_goes_back) {
  VirtualClock clock;
  std::vector<double> times;
  clock.after(5, [&] {
    clock.after(-3, [&] { times.push_back(clock.now_ms()); });
    clock.after(std::numeric_limits<double>::quiet_NaN(), [&] { times.push_back(clock.now_ms()); });
  });
  while (clock.next()) {
  }
  EXPECT_THAT(times, ::testing::ElementsAre(5, 5));
}

}  // namespace
}  // namespace maestro
