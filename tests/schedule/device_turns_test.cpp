// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/device_turns.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>

namespace maestro {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint32_t core = 0;
constexpr std::uint32_t other_core = 1;

class DeviceTurnsTest : public ::testing::Test {
 protected:
  void offer(const std::string& name, std::uint64_t step, const std::vector<DeviceTurn>& pass) {
    turns_.offer({StepId(step), Pass::train}, pass, [this, name] { begun_.push_back(name); });
  }
  std::vector<std::string> begun_;
  DeviceTurns turns_;
};

TEST_F(DeviceTurnsTest, passes_of_a_step_begin_in_their_places_whatever_is_offered_first) {  // DT-1
  offer("third", 1, {{core, 2, true}});
  offer("second", 1, {{core, 1}});
  EXPECT_THAT(begun_, IsEmpty());
  offer("first", 1, {{core, 0}});
  EXPECT_THAT(begun_, ElementsAre("first"));
  turns_.ended(core);
  EXPECT_THAT(begun_, ElementsAre("first", "second"));
  turns_.ended(core);
  EXPECT_THAT(begun_, ElementsAre("first", "second", "third"));
}

TEST_F(DeviceTurnsTest, a_device_without_a_pass_of_this_step_takes_one_of_the_next) {  // DT-2
  offer("next step", 2, {{core, 0}});
  EXPECT_THAT(begun_, ElementsAre("next step"));
  offer("next step, too", 2, {{core, 1, true}});
  offer("this step", 1, {{core, 0, true}});
  turns_.ended(core);
  EXPECT_THAT(begun_, ElementsAre("next step", "this step"));
  turns_.ended(core);
  EXPECT_THAT(begun_, ElementsAre("next step", "this step", "next step, too"));
}

TEST_F(DeviceTurnsTest, a_pass_of_two_devices_begins_when_both_are_free) {
  offer("on the other", 1, {{other_core, 0}});
  offer("on both", 1, {{core, 0}, {other_core, 1, true}});
  EXPECT_THAT(begun_, ElementsAre("on the other"));
  turns_.ended(other_core);
  EXPECT_THAT(begun_, ElementsAre("on the other", "on both"));
  offer("last", 1, {{core, 1, true}});
  turns_.ended(other_core);
  EXPECT_THAT(begun_, ElementsAre("on the other", "on both")) << "the pass has not ended on the first device";
  turns_.ended(core);
  EXPECT_THAT(begun_, ElementsAre("on the other", "on both", "last"));
}

TEST_F(DeviceTurnsTest, a_free_device_waits_with_a_pass_that_the_next_step_would_hold_up) {  // DT-2
  offer("on the other", 1, {{other_core, 0}});
  offer("on both", 1, {{core, 0, true}, {other_core, 1, true}});
  offer("next step", 2, {{core, 0}});
  EXPECT_THAT(begun_, ElementsAre("on the other"));
  turns_.ended(other_core);
  EXPECT_THAT(begun_, ElementsAre("on the other", "on both"));
}

TEST_F(DeviceTurnsTest, places_count_anew_in_every_step_and_kind_of_pass) {
  for (std::uint64_t step = 1; step <= 3; ++step) {
    for (const Pass pass : {Pass::train, Pass::evaluate}) {
      turns_.offer({StepId(step), pass}, {{core, 0, true}}, [this] { begun_.emplace_back("pass"); });
      turns_.ended(core);
    }
  }
  EXPECT_EQ(begun_.size(), 6u);
}

TEST_F(DeviceTurnsTest, a_start_ends_before_the_next_begins) {  // DT-3
  turns_.begin([this] {
    turns_.begin([this] { begun_.emplace_back("inner"); });
    offer("pass", 1, {{core, 0}});
    begun_.emplace_back("outer");
  });
  EXPECT_THAT(begun_, ElementsAre("outer", "inner", "pass"));
}

TEST_F(DeviceTurnsTest, passes_take_no_turns_after_a_lane_has_left) {  // DT-4
  offer("running", 1, {{core, 0}});
  offer("next step", 2, {{core, 3}});
  offer("waits", 1, {{core, 2}, {other_core, 1}});
  EXPECT_THAT(begun_, ElementsAre("running"));
  turns_.open();
  EXPECT_EQ(begun_.front(), "running");
  EXPECT_THAT(begun_, ::testing::UnorderedElementsAre("running", "waits", "next step"));
  turns_.ended(core);
  offer("later", 2, {{core, 7}});
  EXPECT_EQ(begun_.back(), "later");
}

TEST_F(DeviceTurnsTest, nothing_begins_after_a_stop) {
  const auto held = std::make_shared<int>();
  turns_.offer({StepId(1), Pass::train}, {{core, 1}}, [held] {});
  turns_.stop();
  EXPECT_EQ(held.use_count(), 1) << "the start is dropped";
  offer("pass", 1, {{core, 0}});
  turns_.begin([this] { begun_.emplace_back("work"); });
  turns_.ended(core);
  EXPECT_THAT(begun_, IsEmpty());
}

TEST(DeviceTurns, threads_that_offer_at_once_lose_no_pass_and_begin_them_one_by_one) {  // DT-1, DT-3
  constexpr std::uint32_t lanes = 4;
  constexpr std::uint32_t rounds = 500;
  DeviceTurns turns;
  std::atomic<int> inside = 0;
  std::vector<std::uint32_t> order;  // written inside starts alone
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      threads.emplace_back([&, lane] {
        for (std::uint32_t round = 0; round < rounds; ++round) {
          const std::uint32_t place = round * lanes + lane;
          std::atomic<bool> begun = false;
          turns.offer({StepId(1), Pass::train}, {{core, place, place + 1 == lanes * rounds}}, [&, place] {
            EXPECT_EQ(inside++, 0);
            order.push_back(place);
            --inside;
            begun = true;
            begun.notify_one();
          });
          begun.wait(false);
          turns.ended(core);
        }
      });
    }
  }
  ASSERT_EQ(order.size(), lanes * rounds);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

}  // namespace
}  // namespace maestro
