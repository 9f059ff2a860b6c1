// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/library_places.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using ::testing::ElementsAre;

TEST(LibraryPlaces, are_beside_the_program_in_lib_and_beside_the_code) {
  EXPECT_THAT(library_places("libx.so", "/usr/bin", "/home/me/venv/maestro"),
              ElementsAre("/usr/bin/libx.so", "/usr/lib/maestro/libx.so", "/home/me/venv/maestro/libx.so"));
}

TEST(LibraryPlaces, are_named_once) {
  EXPECT_THAT(library_places("libx.so", "/opt/bin", "/opt/lib/maestro"),
              ElementsAre("/opt/bin/libx.so", "/opt/lib/maestro/libx.so"));
  EXPECT_THAT(library_places("libx.so", "/opt/bin", "/opt/bin"),
              ElementsAre("/opt/bin/libx.so", "/opt/lib/maestro/libx.so"));
  EXPECT_EQ(library_places("libx.so", "/opt/bin", "").size(), 2U);
}

}  // namespace
}  // namespace maestro
