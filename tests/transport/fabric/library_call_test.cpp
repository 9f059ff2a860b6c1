// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/library_call.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

TEST(LibraryCall, a_call_that_returns_in_time_is_left_in_peace) {  // LW-1
  LibraryCall call(2);
  call.enter();
  EXPECT_FALSE(call.look());
  EXPECT_TRUE(call.leave());
  EXPECT_FALSE(call.look());
}

TEST(LibraryCall, a_call_seen_at_every_look_is_condemned_once) {  // LW-1, LW-2
  LibraryCall call(3);
  call.enter();
  EXPECT_FALSE(call.look());
  EXPECT_FALSE(call.look());
  EXPECT_TRUE(call.look());
  EXPECT_FALSE(call.look());
  EXPECT_FALSE(call.leave());
}

TEST(LibraryCall, another_call_starts_the_count_anew) {  // LW-2
  LibraryCall call(2);
  for (int i = 0; i < 10; ++i) {
    call.enter();
    EXPECT_FALSE(call.look());
    EXPECT_TRUE(call.leave());
  }
}

TEST(LibraryCall, a_thread_outside_the_library_is_never_condemned) {  // LW-2
  LibraryCall call(2);
  call.enter();
  ASSERT_TRUE(call.leave());
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(call.look());
}

}  // namespace
}  // namespace maestro
