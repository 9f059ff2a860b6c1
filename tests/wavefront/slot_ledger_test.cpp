// SPDX-License-Identifier: Apache-2.0
// LG-1 .. LG-3 of runtime/wavefront/slot_ledger.hpp.
#include "runtime/wavefront/slot_ledger.hpp"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "runtime/core/random.hpp"

namespace maestro {
namespace {

void make(SlotLedger& ledger, double at_ms) {
  ledger.promise();
  ledger.produce(at_ms);
}

TEST(SlotLedger, promises_no_more_inputs_than_there_are_slots) {  // LG-1
  SlotLedger ledger;
  ledger.reset(2, 3);
  for (int n = 0; n < 6; ++n) {
    EXPECT_EQ(ledger.spare(), 6 - n);
    ledger.promise();
  }
  EXPECT_EQ(ledger.spare(), 0);
  ledger.produce(1);
  EXPECT_EQ(ledger.spare(), 0);
  ledger.claim(0, 1, 2);
  EXPECT_EQ(ledger.spare(), 1);
}

TEST(SlotLedger, a_lane_does_not_claim_an_input_that_was_made_while_its_only_slot_was_full) {  // LG-3
  SlotLedger ledger;
  ledger.reset(2, 1);
  make(ledger, 1);
  make(ledger, 2);
  ASSERT_TRUE(ledger.can_claim(0, 1));
  ledger.claim(0, 1, 5);
  EXPECT_FALSE(ledger.can_claim(0, 2));
  EXPECT_TRUE(ledger.can_claim(1, 2));
  make(ledger, 5);
  EXPECT_TRUE(ledger.can_claim(0, 5));
}

TEST(SlotLedger, a_lane_does_not_take_the_only_slot_that_an_older_input_can_have_lain_in) {  // LG-2
  SlotLedger ledger;
  ledger.reset(2, 1);
  make(ledger, 1);
  ledger.claim(0, 1, 4);  // lane 0 is free since 4, lane 1 from the start
  make(ledger, 5);
  make(ledger, 6);
  ledger.claim(0, 5, 7);  // lane 0 is free since 7: only lane 1 can hold the input of 6
  make(ledger, 8);
  EXPECT_FALSE(ledger.can_claim(1, 8));  // otherwise the input of 6 would be without a slot
  EXPECT_TRUE(ledger.can_claim(0, 8));
  EXPECT_TRUE(ledger.can_claim(1, 6));
}

TEST(SlotLedger, reserved_slots_come_back_as_they_were) {
  SlotLedger ledger;
  ledger.reset(1, 2);
  std::vector<double> units(2);
  ASSERT_TRUE(ledger.can_reserve(0, 2));
  ledger.reserve(0, 2, units.data());
  EXPECT_FALSE(ledger.can_reserve(0, 1));
  EXPECT_EQ(ledger.spare(), 0);
  ledger.cancel(0, 2, units.data());
  EXPECT_EQ(ledger.spare(), 2);
  make(ledger, 0);
  EXPECT_TRUE(ledger.can_claim(0, 0));
}

TEST(SlotLedger, the_only_slot_that_the_last_input_can_have_lain_in_is_not_reserved) {  // LG-2
  SlotLedger ledger;
  ledger.reset(2, 1);
  make(ledger, 1);
  make(ledger, 5);
  ledger.claim(0, 1, 10);  // lane 0 is free since 10: only lane 1 can hold the input of 5
  EXPECT_FALSE(ledger.can_reserve(1, 1));
  EXPECT_TRUE(ledger.can_reserve(0, 1));
}

TEST(SlotLedger, a_unit_that_is_set_aside_is_open_to_no_other_input_until_its_consumer_has_started) {  // LG-2, LG-3
  SlotLedger ledger;
  ledger.reset(1, 1);
  make(ledger, 1);
  const double unit = ledger.set_aside(0, 1);
  EXPECT_EQ(ledger.spare(), 0);
  const double since = 3;
  ledger.cancel(0, 1, &since);
  EXPECT_EQ(ledger.spare(), 1);
  EXPECT_LT(unit, 1);
  make(ledger, 4);
  EXPECT_TRUE(ledger.can_claim(0, 4));
  EXPECT_FALSE(ledger.can_claim(0, 2)) << "the input before left at 3";
}

TEST(SlotLedger, an_input_that_is_put_back_waits_where_it_was) {  // LG-1, LG-3
  SlotLedger ledger;
  ledger.reset(2, 1);
  make(ledger, 1);
  make(ledger, 2);
  const double unit = ledger.set_aside(0, 1);
  EXPECT_EQ(ledger.held(), 1);
  ledger.put_back(0, 1, unit);
  EXPECT_EQ(ledger.held(), 2);
  EXPECT_EQ(ledger.spare(), 0);
  EXPECT_TRUE(ledger.can_claim(0, 1));
  EXPECT_TRUE(ledger.can_claim(1, 1));
}

/// The inputs [made, taken) of a lane never overlap more than its slots, whichever are claimed in any order.
TEST(SlotLedger, random_claims_never_put_more_inputs_on_a_lane_than_it_has_slots) {  // LG-2, LG-3
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const int lanes = static_cast<int>(1 + random.below(4));
    const int slots = static_cast<int>(1 + random.below(3));
    SlotLedger ledger;
    ledger.reset(lanes, slots);
    std::vector<double> waiting;
    std::map<int, std::vector<std::pair<double, double>>> taken;
    struct Aside {
      int lane = 0;
      double made = 0;
      double unit = 0;
      double since = 0;
    };
    std::vector<Aside> asides;
    for (double now = 1; now < 120; now += 1) {
      if (random.below(2) == 0 && ledger.spare() > 0) {
        make(ledger, now);
        waiting.push_back(now);
      }
      const int lane = static_cast<int>(random.below(static_cast<std::uint64_t>(lanes)));
      if (!asides.empty() && random.below(4) == 0) {
        Aside aside = asides.front();
        asides.erase(asides.begin());
        if (random.below(2) == 0) {
          ledger.put_back(aside.lane, aside.made, aside.unit);
          waiting.push_back(aside.made);
        } else {
          aside.since += static_cast<double>(random.below(static_cast<std::uint64_t>(now - aside.since) + 1));
          ledger.cancel(aside.lane, 1, &aside.since);
          taken[aside.lane].emplace_back(aside.made, aside.since);
        }
      }
      if (waiting.empty() || random.below(2) == 0) continue;
      const std::size_t choice = random.below(waiting.size());
      if (!ledger.can_claim(lane, waiting[choice])) continue;
      if (random.below(2) == 0) {
        asides.push_back({lane, waiting[choice], ledger.set_aside(lane, waiting[choice]), now});
      } else {
        ledger.claim(lane, waiting[choice], now);
        taken[lane].emplace_back(waiting[choice], now);
      }
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(choice));
    }
    for (const Aside& aside : asides) {
      ledger.put_back(aside.lane, aside.made, aside.unit);
      waiting.push_back(aside.made);
    }
    // Some lane can always take the remaining inputs, in turn.
    for (double now = 200; !waiting.empty(); now += 1) {
      int lane = 0;
      while (lane < lanes && !ledger.can_claim(lane, waiting.front())) ++lane;
      ASSERT_LT(lane, lanes) << "seed " << seed << ": an input is stuck";
      ledger.claim(lane, waiting.front(), now);
      taken[lane].emplace_back(waiting.front(), now);
      waiting.erase(waiting.begin());
    }
    for (const auto& [lane, inputs] : taken) {
      for (const auto& [made, end] : inputs) {
        int held = 0;
        for (const auto& [other_made, other_end] : inputs) held += other_made <= made && made < other_end ? 1 : 0;
        ASSERT_LE(held, slots) << "seed " << seed << ", lane " << lane;
      }
    }
  }
}

}  // namespace
}  // namespace maestro
