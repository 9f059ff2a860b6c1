// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/timeline_trace.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace maestro {
namespace {

using nlohmann::json;

/// Returns the trace of a teacher replica and two student replicas; the first of these is idle.
json trace() {
  Workload workload;
  workload.sections = {{"teacher", false, 1, no_limit, {}}, {"student", true, 2, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0.5}};
  workload.tasks = {{0, 7, 1, 0, {}}, {1, 7, 2, 4, {{0, 0}}}};
  const Schedule schedule{{{0, false, 0, 0, 1}, {1, false, 1, 1.5, 3.5}, {1, true, 1, 3.5, 7.5}}, 7.5};
  return json::parse(timeline_trace_json(workload, schedule));
}

TEST(TimelineTrace, sections_are_processes_and_replicas_are_threads_with_names) {
  std::map<std::int64_t, std::string> processes;
  std::set<std::string> threads;
  const json whole = trace();
  for (const json& event : whole["traceEvents"]) {
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
    if (event["name"] == "thread_name") threads.insert(event["args"]["name"]);
  }
  EXPECT_EQ(processes, (std::map<std::int64_t, std::string>{{1, "teacher"}, {2, "student"}}));
  EXPECT_EQ(threads, (std::set<std::string>{"teacher replica 0", "student replica 0", "student replica 1"}));
}

TEST(TimelineTrace, every_pass_is_a_slice_in_microseconds_on_its_lane) {
  std::vector<json> slices;
  const json whole = trace();
  for (const json& event : whole["traceEvents"]) {
    if (event["ph"] == "X") slices.push_back(event);
  }
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[2]["name"], "backward 7");
  EXPECT_EQ(slices[2]["pid"], 2);
  EXPECT_EQ(slices[2]["tid"], 1);
  EXPECT_EQ(slices[2]["ts"], 3500);
  EXPECT_EQ(slices[2]["dur"], 4000);
  EXPECT_EQ(slices[2]["args"]["sample"], 7);
}

}  // namespace
}  // namespace maestro
