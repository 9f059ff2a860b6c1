// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/iso_time.hpp"

#include <gtest/gtest.h>

#include "tests/support/time_zone.hpp"

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

TEST(IsoTime, a_day_is_read_as_it_is_written) {
  for (const char* text : {"1970-01-01", "2024-02-29", "2026-01-31", "2261-12-31"}) {
    const auto day = parse_iso_day(text);
    ASSERT_TRUE(day.has_value()) << text;
    EXPECT_EQ(iso_day(*day), text);
  }
  for (const char* text : {"", "9999-12-31", "2023-02-29", "2026-13-01", "2026-00-10", "2026-01-00", "2026-1-31",
                           "26-01-31", "2026/01/31", "2026-01-31 ", " 2026-01-31", "2026-01-3x", "2026-01-31T00:00"}) {
    EXPECT_FALSE(parse_iso_day(text).has_value()) << text;
  }
}

TEST(IsoTime, the_local_day_is_that_of_the_time_zone) {
  const auto day_in = [](const char* name) {
    const TimeZone zone(name);
    return local_day();
  };
  const auto apart = (day_in(earliest_zone) - day_in(latest_zone)).count();
  EXPECT_TRUE(apart == 1 || apart == 2) << apart << " days";
}

}  // namespace
}  // namespace maestro
