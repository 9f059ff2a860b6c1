// SPDX-License-Identifier: Apache-2.0
#include "actors/process/start_thread.hpp"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

namespace maestro {
namespace {

TEST(StartThread, runs_starts_one_at_a_time_in_their_order) {
  std::vector<int> order;
  std::promise<void> all;
  StartThread starts;
  for (int start = 0; start < 10; ++start) {
    starts.add([&order, &all, start] {
      order.push_back(start);
      if (start == 9) all.set_value();
    });
  }
  all.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(StartThread, drops_queued_starts_when_it_closes_and_waits_for_the_current_one) {
  std::promise<void> begun, may_end;
  bool ended = false;
  auto dropped = std::make_shared<std::promise<int>>();
  std::future<int> never = dropped->get_future();
  StartThread starts;
  starts.add([&] {
    begun.set_value();
    may_end.get_future().wait();
    ended = true;
  });
  starts.add([dropped] { dropped->set_value(1); });
  dropped.reset();
  begun.get_future().wait();
  EXPECT_TRUE(starts.close());
  EXPECT_THROW(never.get(), std::future_error);
  may_end.set_value();
  starts.stop();
  EXPECT_TRUE(ended);
  starts.add([] { FAIL() << "it is closed"; });
}

TEST(StartThread, has_no_thread_before_the_first_start) {
  StartThread starts;
  EXPECT_FALSE(starts.close());
}

}  // namespace
}  // namespace maestro
