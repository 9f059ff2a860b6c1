// SPDX-License-Identifier: Apache-2.0
// Actions of rank 0's supervisor before it reports a loss that the run recovers from (SV-12).
#include <gtest/gtest.h>

#include "tests/actors/run/placements_bench.hpp"

namespace maestro::testing {
namespace {

/// Process 3, which has the student, is lost.
class RescueOfState : public MovesOfPlacements {
 protected:
  void lose() {
    rescues_ = true;
    start();
    kill(3);
    EXPECT_EQ(times("rescue from process 3"), 0) << "reports of the loss are awaited first";
    bench_.advance(std::chrono::milliseconds(250));
    EXPECT_EQ(times("rescue from process 3"), 1);
  }
};

TEST_F(RescueOfState, precedes_the_report) {  // SV-12
  lose();
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
  EXPECT_EQ(removed_, (std::vector<std::uint32_t>{3, 3})) << "by the others, which stay meanwhile";
}

TEST_F(RescueOfState, ends_after_its_limit) {
  silent_ = true;
  lose();
  EXPECT_FALSE(ended(0));
  EXPECT_FALSE(ended(1)) << "a survivor stays though it has lost its connection";
  bench_.advance(std::chrono::seconds(20));
  EXPECT_TRUE(ended(0));
}

TEST_F(RescueOfState, ends_with_a_further_loss) {
  silent_ = true;
  lose();
  EXPECT_FALSE(ended(0));
  kill(2);
  ASSERT_TRUE(ended(0));
  EXPECT_NE(ends_[0].get().error.find("process 3"), std::string::npos) << ends_[0].get().error;
}

TEST_F(RescueOfState, ends_with_a_failure_and_names_it) {
  silent_ = true;
  lose();
  bench_.send(supervisors_[0], Failure{"checkpoint of step 3: no space left"});
  bench_.deliver_all();
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
  EXPECT_NE(ends_[0].get().error.find("no space left"), std::string::npos) << ends_[0].get().error;
}

TEST_F(RescueOfState, is_left_out_where_no_recovery_follows) {
  start();
  kill(3);
  bench_.advance(std::chrono::milliseconds(250));
  EXPECT_TRUE(ended(0));
  EXPECT_EQ(times("rescue from process 3"), 0);
}

}  // namespace
}  // namespace maestro::testing
