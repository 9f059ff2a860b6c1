// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/recent_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using ::testing::ElementsAre;

TEST(RecentRows, rows_keep_their_numbers_when_earlier_ones_leave_memory) {
  RecentRows<int> rows;
  rows.keep(3);
  for (int row = 0; row < 5; ++row) rows.push_back(10 * row);
  EXPECT_THAT(rows.kept(), ElementsAre(20, 30, 40));
  EXPECT_EQ(rows.first(), 2U);
  EXPECT_EQ(rows.next(), 5U);
  EXPECT_EQ(rows.place_of(0), 0U);
  EXPECT_EQ(rows.place_of(4), 2U);
  EXPECT_EQ(rows.place_of(5), 3U);
}

TEST(RecentRows, a_row_that_is_made_again_has_a_new_number) {
  RecentRows<int> rows;
  for (int row = 0; row < 5; ++row) rows.push_back(row);
  rows.erase_if([](int row) { return row >= 3; });
  EXPECT_EQ(rows.first(), 0U) << "none has left memory";
  EXPECT_EQ(rows.next(), 5U);
  EXPECT_EQ(rows.number_at(3), 5U);
  rows.push_back(3);
  EXPECT_THAT(rows.kept(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(rows.place_of(3), 3U) << "who has seen rows 0 to 2 goes on with the new one";
  EXPECT_EQ(rows.place_of(5), 3U) << "so does who has seen all five";
  EXPECT_EQ(rows.number_at(3), 5U);
}

TEST(RecentRows, removed_rows_have_not_left_memory) {
  RecentRows<int> rows;
  rows.keep(2);
  for (int row = 0; row < 3; ++row) rows.push_back(row);
  rows.erase_if([](int row) { return row == 1; });
  rows.push_back(3);
  EXPECT_THAT(rows.kept(), ElementsAre(2, 3));
  EXPECT_EQ(rows.first(), 1U);
}

}  // namespace
}  // namespace maestro
