// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/machine_load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MachineLoadTest, a_loaded_machine_is_named_with_its_figures) {
  EXPECT_THAT(load_warning({0.625, 5.25}, 2),
              AllOf(HasSubstr("a busy thread gets 62% of a core (load average 5.25 on 2 cores)"),
                    HasSubstr("are of no use"), IsOneLine()));
  EXPECT_THAT(load_warning({0.5, {}}, 2), AllOf(HasSubstr("gets 50% of a core, so the times"), IsOneLine()));
}

TEST(MachineLoadTest, nothing_is_said_of_a_machine_that_gives_a_thread_its_core) {
  EXPECT_EQ(load_warning({0.9, 0.1}, 2), "");
  EXPECT_EQ(load_warning({1, 7}, 2), "") << "a load that has just ended does not matter";
  EXPECT_TRUE(allows_measuring({0.9, {}}));
  EXPECT_FALSE(allows_measuring({0.89, {}}));
}

TEST(MachineLoadTest, the_load_average_is_the_first_figure_of_its_file) {
  EXPECT_EQ(read_load_average("0.52 0.58 0.59 2/1234 5678\n"), 0.52);
  for (const char* const wrong : {"", "0.52", "x 0.5", "-1 0"})
    EXPECT_EQ(read_load_average(wrong), std::nullopt) << wrong;
}

TEST(MachineLoadTest, more_busy_threads_than_cores_get_a_part_of_a_core) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const MachineLoad load = measure_load(4 * cores);
  EXPECT_GT(load.core_share, 0);
  EXPECT_LT(load.core_share, 0.6);
  EXPECT_TRUE(load.runnable.has_value());
}

}  // namespace
}  // namespace maestro
