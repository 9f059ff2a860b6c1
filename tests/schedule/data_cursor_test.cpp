// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/data_cursor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Segment = DataCursor::Segment;

TEST(DataCursor, counts_from_the_first_step) {
  const DataCursor cursor;
  EXPECT_EQ(cursor.position(1, 16), 0U);
  EXPECT_EQ(cursor.position(11, 16), 160U);
}

TEST(DataCursor, leaves_out_the_positions_of_steps) {
  DataCursor cursor;
  cursor.skip(198, 4, 16);
  EXPECT_EQ(cursor.position(197, 16), 196U * 16);
  EXPECT_EQ(cursor.position(198, 16), 201U * 16);
  EXPECT_EQ(cursor.position(300, 16), 303U * 16);
  EXPECT_THAT(cursor.segments(), ElementsAre(Segment{1, 0}, Segment{198, 201 * 16}));
}

TEST(DataCursor, positions_left_out_before_stay_so) {
  DataCursor cursor;
  cursor.skip(20, 4, 10);  // positions 190 to 229
  cursor.skip(15, 2, 10);  // 140 to 159; three steps later begins at 190
  EXPECT_THAT(cursor.segments(), ElementsAre(Segment{1, 0}, Segment{15, 160}, Segment{18, 230}));
  cursor.skip(15, 2, 10);  // 160 to 179
  EXPECT_THAT(cursor.segments(), ElementsAre(Segment{1, 0}, Segment{15, 180}, Segment{16, 230}));
  cursor.skip(15, 2, 10);  // 180 to 189, and 230 to 239
  EXPECT_THAT(cursor.segments(), ElementsAre(Segment{1, 0}, Segment{15, 240}));
}

TEST(DataCursor, every_position_is_read_once_or_left_out) {  // DC-1
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t batch = 1 + random() % 7;
    DataCursor cursor;
    std::set<std::uint64_t> left_out;
    for (int skips = 0; skips < 5; ++skips) {
      const std::uint64_t step = 1 + random() % 60, steps = 1 + random() % 6;
      for (std::uint64_t at = step; at < step + steps; ++at) {
        for (std::uint64_t sample = 0; sample < batch; ++sample) left_out.insert(cursor.position(at, batch) + sample);
      }
      cursor.skip(step, steps, batch);
    }
    std::uint64_t next = 0;
    for (std::uint64_t step = 1; step <= 120; ++step) {
      const std::uint64_t first = cursor.position(step, batch);
      for (; next < first; ++next) ASSERT_TRUE(left_out.contains(next)) << "round " << round << ", position " << next;
      for (; next < first + batch; ++next) ASSERT_FALSE(left_out.contains(next)) << "round " << round;
      ASSERT_EQ(next, first + batch) << "round " << round << ", step " << step;
    }
  }
}

TEST(DataCursor, the_segments_give_every_later_position) {  // DC-2
  DataCursor cursor;
  cursor.skip(20, 4, 10);
  cursor.skip(50, 2, 10);
  const DataCursor again = DataCursor::of(cursor.segments()).value_or_throw();
  for (std::uint64_t step = 1; step < 100; ++step) EXPECT_EQ(again.position(step, 10), cursor.position(step, 10));
  EXPECT_EQ(DataCursor::of({}).value_or_throw().segments(), DataCursor().segments());
  for (const auto& wrong :
       {std::vector<Segment>{{2, 0}}, {{1, 0}, {1, 10}}, {{1, 0}, {5, 100}, {4, 200}}, {{1, 10}, {5, 10}}}) {
    const auto refused = DataCursor::of(wrong);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("cursor: the segment from step"));
  }
}

TEST(DataCursor, agrees_with_another_up_to_a_step) {
  DataCursor one, other;
  one.skip(20, 4, 10);
  EXPECT_TRUE(one.agrees(other, 19));
  EXPECT_FALSE(one.agrees(other, 20));
  other.skip(20, 4, 10);
  EXPECT_TRUE(one.agrees(other, 1000));
}

}  // namespace
}  // namespace maestro
