// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/lane_history.hpp"

#include <gtest/gtest.h>

#include "runtime/page/lane_chart.hpp"
#include "tests/page/count_of.hpp"

namespace maestro {
namespace {

LaneSpan at_step(std::uint64_t step) {
  return {step, step, 2, 1, {{"teacher", 4}, {step % 2 == 0 ? "norm" : "reduction", 3}}};
}

TEST(LaneHistory, keeps_every_step_while_there_is_room) {
  LaneHistory history(4);
  for (std::uint64_t step = 1; step <= 4; ++step) history.add(at_step(step));
  ASSERT_EQ(history.spans().size(), 4u);
  EXPECT_EQ(history.spans()[2].first_step, 3u);
  EXPECT_EQ(history.spans()[2].last_step, 3u);
}

TEST(LaneHistory, joins_steps_in_bounded_memory_and_loses_no_time) {  // LH-1, LH-2
  LaneHistory history(8);
  for (std::uint64_t step = 10; step < 1010; ++step) {
    history.add(at_step(step));
    ASSERT_LE(history.spans().size(), 8u);
  }
  std::uint64_t next = 10;
  for (const LaneSpan& span : history.spans()) {
    EXPECT_EQ(span.first_step, next);
    next = span.last_step + 1;
    EXPECT_EQ(span.busy_ms, 2.0 * static_cast<double>(next - span.first_step));
  }
  EXPECT_EQ(next, 1010u);
  const LaneSpan all = RunLane{"student/0", history.spans()}.total();
  EXPECT_EQ(all.busy_ms, 2000);
  EXPECT_EQ(all.step_end_ms, 1000);
  EXPECT_EQ(all.wait_ms.at("teacher"), 4000);
  EXPECT_EQ(all.wait_ms.at("norm"), 1500);
  EXPECT_EQ(all.total_ms(), 10'000);
}

TEST(LaneHistory, names_the_longest_wait_first_and_leaves_short_ones_out) {
  EXPECT_EQ(waits_text({1, 1, 50, 10, {{"teacher", 30}, {"norm", 10}, {"work", 0.2}}}), "teacher 30%, norm 10%");
  EXPECT_EQ(waits_text({}), "");
}

TEST(LaneHistory, keeps_the_wait_for_the_device_apart) {
  const LaneSpan span{1, 1, 50, 10, {{"teacher", 30}, {"device", 10}}};
  EXPECT_EQ(span.device_ms(), 10);
  EXPECT_EQ(span.waited_ms(), 30);
  EXPECT_EQ(span.total_ms(), 100);
  EXPECT_EQ(waits_text(span), "teacher 30%");
}

TEST(LaneChart, has_a_row_for_each_lane_and_shares_that_fill_it) {
  const auto colour = [](const std::string& section) { return section == "student" ? 1UL : 0UL; };
  EXPECT_EQ(lane_chart({}, colour), "");
  EXPECT_EQ(lane_chart({{"student/0", {}}}, colour), "");
  const std::string chart = lane_chart({{"a<b/0", {at_step(1), at_step(2)}}, {"student/0", {at_step(2)}}}, colour);
  EXPECT_EQ(count_of(chart, "<g><title>"), 3u);
  EXPECT_EQ(count_of(chart, "class=\"s0 p-both\""), 2u);
  EXPECT_EQ(count_of(chart, "class=\"s1 p-both\""), 1u);
  EXPECT_EQ(count_of(chart, "height=\"6.00\""), 3u) << "2 of 10 ms in a bar of 30";
  EXPECT_NE(
      chart.find("a&lt;b/0, step 1: busy 20%, end of steps 10%, waits for the device 0%, other waits: teacher 40%, "
                 "reduction 30%"),
      std::string::npos);
  const std::string shared = lane_chart({{"student/0", {{1, 1, 40, 10, {{"device", 30}, {"norm", 20}}}}}}, colour);
  EXPECT_NE(shared.find("<rect class=\"device-waits\""), std::string::npos);
  EXPECT_EQ(count_of(shared, "height=\"9.00\""), 1u) << "30 of 100 ms in a bar of 30";
  EXPECT_EQ(count_of(shared, "height=\"6.00\""), 1u) << "20 of 100 ms: the other waits";
  EXPECT_EQ(chart.find("a<b"), std::string::npos);
}

}  // namespace
}  // namespace maestro
