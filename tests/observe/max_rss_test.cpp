// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/max_rss.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "runtime/core/aligned_memory.hpp"

namespace maestro {
namespace {

TEST(MaxRss, begins_anew_for_another_run) {
  constexpr std::size_t touched = 64'000'000;
  {
    const AlignedMemory memory(touched);  // returned to the system
    std::memset(memory.data(), 1, touched);
    EXPECT_GE(rss_mb(), 64.0);
  }
  const double before = max_rss_mb();
  begin_max_rss();
  EXPECT_LT(max_rss_mb(), before - 32);
  EXPECT_GE(max_rss_mb(), 0.9 * rss_mb());
}

TEST(MaxRss, grows_with_touched_memory_and_never_falls_in_a_run) {
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
