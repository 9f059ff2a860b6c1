// SPDX-License-Identifier: Apache-2.0
// Fuzz target for workload files: an accepted workload has the order that the policies rely on.
#include "fuzz_target.hpp"
#include "runtime/wavefront/workload_file.hpp"

namespace maestro::fuzz {
namespace {

void check(const Workload& workload) {
  for (const WorkloadSection& section : workload.sections) {
    require(section.devices.empty() || std::ssize(section.devices) == section.replicas, "every lane has its devices");
    for (const std::vector<int>& lane : section.devices) require(!lane.empty(), "a lane has a device");
  }
  for (const WorkloadEdge& edge : workload.edges) {
    require(edge.from < edge.to && edge.to < workload.sections.size(), "sections are in topological order");
  }
  for (std::size_t at = 0; at < workload.tasks.size(); ++at) {
    const WorkloadTask& task = workload.tasks[at];
    require(task.section < workload.sections.size() && task.forward_ms >= 0 && task.backward_ms >= 0,
            "a task has a section and times");
    for (const TaskInput& input : task.inputs) {
      require(input.task < at && input.edge < workload.edges.size(), "inputs are tasks of lower index");
      require(workload.edges[input.edge].to == task.section &&
                  workload.edges[input.edge].from == workload.tasks[input.task].section,
              "an input comes over an edge of its sections");
    }
  }
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  fuzz::accepts([&] { fuzz::check(parse_workload(fuzz::text_of(data, size), "workload.json")); });
  return 0;
}
