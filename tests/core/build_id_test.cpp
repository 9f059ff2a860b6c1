// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/build_id.hpp"

#include <gmock/gmock.h>

namespace maestro {
namespace {

TEST(BuildId, is_the_hash_that_the_linker_wrote) {
  EXPECT_THAT(build_id(), testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_GE(build_id().size(), 16U);
  EXPECT_EQ(build_id(), build_id());
}

}  // namespace
}  // namespace maestro
