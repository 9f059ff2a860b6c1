// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/max_rss.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace maestro {
namespace {

TEST(MaxRss, grows_with_touched_memory_and_never_falls) {
  const double before = max_rss_mb();
  EXPECT_GT(before, 0.5);
  EXPECT_LT(before, 4000.0);
  constexpr std::size_t touched = 64'000'000;
  {
    std::vector<char> memory(touched, 1);
    EXPECT_EQ(memory[touched / 2], 1);
  }
  const double after = max_rss_mb();
  EXPECT_GT(after, 64.0);
  EXPECT_GE(after, before);
  EXPECT_GE(max_rss_mb(), after);
}

}  // namespace
}  // namespace maestro
