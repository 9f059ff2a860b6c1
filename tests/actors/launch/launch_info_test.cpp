// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/launch_info.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Environment variables(std::map<std::string, std::string, std::less<>> values) {
  return [values = std::move(values)](std::string_view name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string refusal_of(const PlaceRequest& request, const Environment& environment = variables({})) {
  try {
    (void)find_run_place(request, environment);
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

Environment torchrun() {
  return variables({{"RANK", "1"},
                    {"WORLD_SIZE", "3"},
                    {"MASTER_ADDR", "127.0.0.1"},
                    {"MASTER_PORT", "4711"},
                    {"LOCAL_WORLD_SIZE", "3"}});
}

TEST(LaunchInfo, a_run_is_alone_unless_somebody_says_otherwise) {  // LI-2
  const LaunchInfo run = find_run_place({}, variables({}));
  EXPECT_EQ(run.place.processes, 1);
  EXPECT_FALSE(run.starts_others());
  EXPECT_FALSE(run.several_hosts());
}

TEST(LaunchInfo, processes_are_all_here) {  // LI-2
  const LaunchInfo run = find_run_place({.processes = 3}, variables({}));
  EXPECT_EQ(run.place.processes, 3);
  EXPECT_EQ(run.place.local_processes, 3);
  EXPECT_THAT(run.place.hosts, ElementsAre(0, 0, 0));
  EXPECT_TRUE(run.starts_others());
}

TEST(LaunchInfo, hosts_have_a_process_each_or_as_many_as_they_say) {  // LI-2
  const LaunchInfo run = find_run_place({.hosts = "a:2,b,c:3"}, variables({}));
  EXPECT_EQ(run.place.processes, 6);
  EXPECT_EQ(run.place.local_processes, 2);
  EXPECT_THAT(run.place.hosts, ElementsAre(0, 0, 1, 2, 2, 2));
  EXPECT_THAT(run.host_names, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(run.several_hosts());
}

TEST(LaunchInfo, what_is_no_list_of_hosts_is_refused_with_an_example) {
  for (const char* hosts : {",", "a,", "a:0", "a:x", "a:65", "a:-1", "-oProxyCommand=x", "a b", "a,a"}) {
    EXPECT_THAT(refusal_of({.hosts = hosts}), HasSubstr("a,b:2")) << hosts;
  }
  EXPECT_THAT(refusal_of({.processes = 2, .hosts = "a"}), HasSubstr("--hosts a:2,b"));
}

TEST(LaunchInfo, a_launcher_of_clusters_decides_alone) {  // LI-1
  const LaunchInfo run = find_run_place({.joins = true}, torchrun());
  EXPECT_EQ(run.place.rank, 1);
  EXPECT_EQ(run.place.processes, 3);
  EXPECT_FALSE(run.starts_others());
  EXPECT_THAT(refusal_of({.processes = 2, .joins = true}, torchrun()), HasSubstr("--processes 2: torchrun"));
  EXPECT_THAT(refusal_of({.hosts = "a,b", .joins = true}, torchrun()), HasSubstr("--hosts a,b: torchrun"));
  EXPECT_EQ(find_run_place({.processes = 3, .joins = true}, torchrun()).place.processes, 3);
}

TEST(LaunchInfo, a_command_that_is_one_process_is_not_run_by_several) {
  EXPECT_THAT(refusal_of({}, torchrun()), HasSubstr("only `maestro train`"));
}

TEST(LaunchInfo, a_started_process_finds_the_place_that_it_was_given) {
  ProcessEnv place = find_run_place({.hosts = "a:2,b"}, variables({})).place;
  place.root_host = "10.0.0.1";
  place.root_port = 4711;
  for (std::int64_t rank = 1; rank < 3; ++rank) {
    std::map<std::string, std::string, std::less<>> given;
    for (const std::string& variable : place_variables(place, rank)) {
      const std::size_t equals = variable.find('=');
      given[variable.substr(0, equals)] = variable.substr(equals + 1);
    }
    const ProcessEnv found = find_process_place(variables(given));
    EXPECT_EQ(found.launcher, JobLauncher::maestro);
    EXPECT_EQ(found.rank, rank);
    EXPECT_EQ(found.local_rank, rank == 1 ? 1 : 0);
    EXPECT_EQ(found.hosts, place.hosts);
    EXPECT_EQ(found.root_host, "10.0.0.1");
    EXPECT_EQ(found.root_port, 4711);
  }
}

TEST(LaunchInfo, processes_that_a_launcher_bound_to_cores_make_up_their_host) {
  ProcessEnv place;
  place.local_processes = 4;
  EXPECT_EQ(devices_of_host(place, 2, 16), 2);  // bound by the user
  place.launcher = JobLauncher::slurm;
  EXPECT_EQ(devices_of_host(place, 2, 16), 8);
  EXPECT_EQ(devices_of_host(place, 8, 16), 16);
  EXPECT_EQ(devices_of_host(place, 16, 16), 16);
}

}  // namespace
}  // namespace maestro
