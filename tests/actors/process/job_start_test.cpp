// SPDX-License-Identifier: Apache-2.0
#include "actors/process/job_start.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace maestro {
namespace {

/// A process from an earlier start that still lives and never joins another start.
class FrozenSurvivorTest : public ::testing::Test {
 protected:
  FrozenSurvivorTest() {
    std::ofstream(shell_) << "#!/bin/sh\nexec sleep 1000\n";
    std::filesystem::permissions(shell_, std::filesystem::perms::owner_all);
    launcher_.start({}, {{1, "a host", {}}}, {{shell_.string()}, ""});
  }
  ~FrozenSurvivorTest() override { std::filesystem::remove(shell_); }

  /// Returns the reason why the next start of two processes does not begin.
  std::string reason_not_to_begin(JobStart& start) {
    JobText job;
    job.silence = std::chrono::milliseconds(250);
    start.begin_again({}, launcher_.running());
    try {
      static_cast<void>(start.gather(
          launcher_, job, [](const RendezvousInfo&, const std::string&, std::int64_t) { return std::uint16_t{1}; }));
    } catch (const JobError& problem) {
      EXPECT_EQ(problem.code(), ErrorCode::peer_lost);
      return problem.what();
    }
    return "it begins";
  }
  [[nodiscard]] static JobStartOptions options() {
    JobStartOptions options;
    options.run.place.processes = 2;
    options.run.place.hosts = {0, 0};
    return options;
  }

  std::filesystem::path shell_ =
      std::filesystem::temp_directory_path() / ("maestro-frozen-" + std::to_string(getpid()));
  Console console_{standard_streams()};
  Launcher launcher_{[](ProcessId, const std::string&) {}};
};

TEST_F(FrozenSurvivorTest, is_lost_if_a_signal_has_stopped_it_before_the_start) {  // JS-5
  JobStart start(options(), console_);
  start.child_stopped(ProcessId(1), true);
  EXPECT_EQ(reason_not_to_begin(start), "process 1 was stopped by a signal before the job began");
}

TEST_F(FrozenSurvivorTest, is_lost_if_it_does_not_join_in_time) {  // JS-5
  JobStart start(options(), console_);
  EXPECT_EQ(reason_not_to_begin(start), "process 1 was silent for too long before the job began again");
}

TEST(JobStart, the_end_of_a_child_after_the_rendezvous_reaches_a_receiver_that_comes_later) {
  Console console(standard_streams());
  JobStart start({}, console);
  Launcher launcher([](ProcessId, const std::string&) {});
  const auto publish = [](const RendezvousInfo&, const std::string&, std::int64_t) { return std::uint16_t{1}; };
  static_cast<void>(start.gather(launcher, {}, publish));  // a single process
  start.child_ended(ProcessId(1), "signal 9");             // a process from the start has a host; a later one has none

  std::vector<std::string> received;
  const auto receive = [&](ProcessId child, const std::string& how, bool again) {
    EXPECT_FALSE(again);
    received.push_back(std::to_string(child.value()) + ": " + how);
  };
  start.route_child_ends(receive);
  EXPECT_EQ(received, std::vector<std::string>{"1: signal 9"});
  start.child_ended(ProcessId(2), "signal 11");
  EXPECT_EQ(received.back(), "2: signal 11");
  start.route_child_ends({});
  start.route_child_ends(receive);
  EXPECT_EQ(received.size(), 2U) << "an end is reported once";
}

TEST(JobStart, every_start_of_a_run_uses_the_provider_of_the_first) {  // JS-6
  Console console(standard_streams());
  JobStart start({}, console);
  Launcher launcher([](ProcessId, const std::string&) {});
  const auto publish = [](const RendezvousInfo&, const std::string&, std::int64_t) { return std::uint16_t{1}; };
  JobText job;
  job.most_processes = std::size_t{1} << 24;  // more segments than any machine has room for
  EXPECT_EQ(start.gather(launcher, job, publish).shared_memory, SharedMemoryUse::by_none);
  start.begin_again({}, {});
  EXPECT_EQ(start.gather(launcher, {}, publish).shared_memory, SharedMemoryUse::by_none);
}

TEST(JobStart, a_process_of_an_earlier_start_that_ends_before_it_has_joined_is_replaced) {  // JS-5
  Console console(standard_streams());
  JobStartOptions options;
  options.run.place.processes = 2;
  options.run.place.hosts = {0, 0};
  JobStart start(options, console);
  Launcher launcher([&](ProcessId child, const std::string& how) { start.child_ended(child, how); });
  const auto publish = [&](const RendezvousInfo&, const std::string&, std::int64_t) {
    start.child_ended(ProcessId(1), "signal 9");
    start.route_child_ends([](ProcessId, const std::string& how, bool) { ADD_FAILURE() << how << ": it is replaced"; });
    return std::uint16_t{1};
  };
  // The replacement process is this test program, which lists its tests and ends.
  start.begin_again({"--gtest_list_tests", "--gtest_filter=none"}, {ProcessId(1)});
  try {
    static_cast<void>(start.gather(launcher, {}, publish));
    FAIL() << "nobody has joined";
  } catch (const JobError& problem) {
    EXPECT_STREQ(problem.what(), "process 1 ended before the job began: exit status 0");
  }
  EXPECT_EQ(launcher.pids().size(), 1U);
}

}  // namespace
}  // namespace maestro
