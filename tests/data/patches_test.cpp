// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/patches.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

TEST(PictureGrids, hold_the_most_of_every_grid_and_whether_all_have_one_width) {
  PictureGrids grids;
  EXPECT_TRUE(grids.one_width);
  grids.add({2, 6});
  grids.add({3, 3});
  EXPECT_EQ(grids.largest, (PatchGrid{2, 6}));
  EXPECT_EQ(grids.rows, 3);
  EXPECT_EQ(grids.columns, 6);
  EXPECT_FALSE(grids.one_width);
  grids.add({1, 6});
  EXPECT_FALSE(grids.one_width) << "an earlier image has another width";
}

}  // namespace
}  // namespace maestro
