// SPDX-License-Identifier: Apache-2.0
#include "actors/process/job_start.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

TEST(JobStart, the_end_of_a_child_after_the_rendezvous_reaches_a_receiver_that_comes_later) {
  Console console(standard_streams());
  JobStart start({}, console);
  Launcher launcher([](ProcessId, const std::string&) {});
  const auto publish = [](const RendezvousInfo&, const std::string&, std::int64_t) { return std::uint16_t{1}; };
  static_cast<void>(start.gather(launcher, {}, publish));  // of a single process
  start.child_ended(ProcessId(1), "signal 9");  // a process of the start has a host, one that joined later has none

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
  job.most_processes = std::size_t{1} << 24;  // no machine has room for their segments
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
  // What is started in its place is this program, which lists its tests and ends.
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
