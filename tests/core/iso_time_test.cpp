// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/iso_time.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

std::string at(std::int64_t ms) {
  return iso_time(system_clock::time_point(milliseconds(ms)));
}

TEST(IsoTime, is_utc_to_the_millisecond) {
  EXPECT_EQ(at(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(at(1795523400123), "2026-11-24T12:30:00.123Z");  // date -u -d @1795523400
  EXPECT_EQ(at(1709251199999), "2024-02-29T23:59:59.999Z");
}

TEST(IsoTime, has_whole_milliseconds_cut_off_also_before_1970) {
  EXPECT_EQ(iso_time(system_clock::time_point(std::chrono::nanoseconds(1999999))), "1970-01-01T00:00:00.001Z");
  EXPECT_EQ(at(-1), "1969-12-31T23:59:59.999Z");
}

}  // namespace
}  // namespace maestro
