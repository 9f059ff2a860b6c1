// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/timeline_trace.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>

namespace maestro {

namespace {

using nlohmann::ordered_json;

constexpr double us_per_ms = 1000;

ordered_json label(const char* what, std::size_t process, std::int64_t thread, const char* key, ordered_json value) {
  ordered_json event = {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}};
  event["args"][key] = std::move(value);
  return event;
}

}  // namespace

std::string timeline_trace_json(const Workload& workload, const Schedule& schedule) {
  ordered_json events = ordered_json::array();
  for (std::size_t section = 0; section < workload.sections.size(); ++section) {
    const WorkloadSection& lanes = workload.sections[section];
    const std::size_t process = section + 1;  // viewers use process 0 themselves
    events.push_back(label("process_name", process, 0, "name", lanes.name));
    events.push_back(label("process_sort_index", process, 0, "sort_index", section));
    for (std::int64_t replica = 0; replica < lanes.replicas; ++replica) {
      events.push_back(
          label("thread_name", process, replica, "name", lanes.name + " replica " + std::to_string(replica)));
      events.push_back(label("thread_sort_index", process, replica, "sort_index", replica));
    }
  }
  for (const PlannedPass& pass : schedule.passes) {
    const WorkloadTask& task = workload.tasks[pass.task];
    const char* kind = pass.backward ? "backward" : "forward";
    events.push_back({{"name", std::string(kind) + " " + std::to_string(task.sample)},
                      {"cat", kind},
                      {"ph", "X"},
                      {"pid", task.section + 1},
                      {"tid", pass.replica},
                      {"ts", pass.start_ms * us_per_ms},
                      {"dur", (pass.end_ms - pass.start_ms) * us_per_ms},
                      {"args", {{"sample", task.sample}}}});
  }
  return ordered_json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace maestro
