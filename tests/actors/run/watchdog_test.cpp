// SPDX-License-Identifier: Apache-2.0
#include "actors/run/watch/watchdog.hpp"

#include <gtest/gtest.h>

#include <future>

namespace maestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Watchdog, calls_when_a_phase_outlasts_its_limit) {  // WD-1
  std::promise<std::string> expired;
  Watchdog dog([&expired](const std::string& line) { expired.set_value(line); });
  dog.limit("closing the network", milliseconds(1));
  EXPECT_EQ(expired.get_future().get(), "closing the network did not end in time");
}

TEST(Watchdog, names_the_part_of_a_phase_that_outlasts_its_limit) {  // WD-1
  const auto line_with = [](milliseconds limit) {
    std::promise<std::string> expired;
    Watchdog dog([&expired](const std::string& line) { expired.set_value(line); });
    dog.limit("the start", seconds(1000));
    dog.part("opening the devices");
    dog.limit("the end", limit);
    dog.part("ending the actors");
    return expired.get_future().get();
  };
  milliseconds limit(300);
  std::string line = line_with(limit);
  // On a busy machine, the phase may be over before its part begins.
  while (line == "the end did not end in time" && limit < seconds(60)) line = line_with(limit *= 4);
  EXPECT_EQ(line, "the end did not end in time: ending the actors takes too long");
}

TEST(Watchdog, of_phases_that_end_in_time_says_nothing) {  // WD-1
  Watchdog dog([](const std::string& line) { ADD_FAILURE() << line; });
  for (int phase = 0; phase < 100; ++phase) dog.limit("a phase", seconds(1000));
  dog.no_limit();
}

TEST(Watchdog, ends_a_run_that_stands_still) {  // WD-2
  const std::atomic<std::uint64_t> events = 5;
  std::promise<std::string> stalled;
  Watchdog dog([](const std::string& line) { ADD_FAILURE() << line; });
  Watchdog::Progress progress;
  progress.events = &events;
  progress.limit = milliseconds(1);
  progress.look = [] {
    StallLook look;
    look.announced = true;
    return look;
  };
  progress.stalled = [&stalled](const std::string& line) { stalled.set_value(line); };
  dog.watch(progress);
  EXPECT_NE(stalled.get_future().get().find("the run is stalled"), std::string::npos);
}

TEST(Watchdog, takes_a_look_that_throws_for_a_silent_coordinator) {  // WD-2
  const std::atomic<std::uint64_t> events = 5;
  std::promise<std::string> stalled;
  Watchdog dog([](const std::string& line) { ADD_FAILURE() << line; });
  Watchdog::Progress progress;
  progress.events = &events;
  progress.limit = milliseconds(1);
  progress.look = []() -> StallLook { throw std::runtime_error("no answer"); };
  progress.stalled = [&stalled](const std::string& line) { stalled.set_value(line); };
  dog.watch(progress);
  EXPECT_NE(stalled.get_future().get().find("no answer from the coordinator (no answer) for "), std::string::npos);
}

TEST(Watchdog, does_not_look_any_more_once_stop_watching_has_returned) {
  const std::atomic<std::uint64_t> events = 5;
  std::atomic<bool> over = false;
  std::promise<void> looked;
  Watchdog dog([](const std::string& line) { ADD_FAILURE() << line; });
  Watchdog::Progress progress;
  progress.events = &events;
  progress.limit = milliseconds(1);
  progress.look = [&, first = true]() mutable {
    EXPECT_FALSE(over);
    if (std::exchange(first, false)) looked.set_value();
    return StallLook();
  };
  dog.watch(progress);
  looked.get_future().wait();
  dog.stop_watching();
  over = true;
}

}  // namespace
}  // namespace maestro
