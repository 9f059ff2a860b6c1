// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/idle_backoff.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

using namespace std::chrono_literals;

TEST(IdleBackoff, looks_again_at_once_right_after_an_event) {
  const IdleBackoff::Clock::time_point start{};
  IdleBackoff backoff(start);
  EXPECT_EQ(backoff.pause(start + 4us), 0us);
  EXPECT_GT(backoff.pause(start + 5us), 0us);
}

TEST(IdleBackoff, delays_an_event_by_at_most_a_64th_of_the_silence_or_the_shortest_pause) {
  const IdleBackoff::Clock::time_point start{};
  const IdleBackoff backoff(start);
  for (std::chrono::nanoseconds silence = 1us; silence < 1s; silence += silence / 3 + 1us) {
    const auto pause = backoff.pause(start + silence);
    EXPECT_LE(pause, std::max<IdleBackoff::Clock::duration>(silence / 64, 20us));
    EXPECT_LE(pause, 5ms);
  }
}

TEST(IdleBackoff, a_thread_that_has_long_been_idle_wakes_two_hundred_times_a_second) {
  const IdleBackoff::Clock::time_point start{};
  EXPECT_EQ(IdleBackoff(start).pause(start + 10s), 5ms);
}

TEST(IdleBackoff, an_event_ends_the_silence) {
  const IdleBackoff::Clock::time_point start{};
  IdleBackoff backoff(start);
  backoff.note_event(start + 10s);
  EXPECT_EQ(backoff.pause(start + 10s), 0us);
}

}  // namespace
}  // namespace maestro
