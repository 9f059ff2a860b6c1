// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/wavefront/task_graph.hpp"

namespace maestro {

namespace {

std::string milliseconds(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g ms", value);
  return text;
}

/// Places of a task's passes in the schedule.
struct TaskPasses {
  const PlannedPass* forward = nullptr;
  const PlannedPass* backward = nullptr;
};

/// A place held from `begin` until just before `end`; an error names `task` if too many are held.
struct Holding {
  double begin = 0;
  double end = 0;
  std::size_t task = 0;
};

/// Returns the holding that begins when `limit` places are already held. A place whose holding ends at that moment, or
/// within `tolerance` of it, is free.
std::optional<Holding> first_beyond(std::vector<Holding> holdings, std::int64_t limit, double tolerance) {
  std::erase_if(holdings, [&](const Holding& held) { return held.end - tolerance <= held.begin; });
  std::vector<double> ends;
  for (const Holding& held : holdings) ends.push_back(held.end - tolerance);
  std::sort(ends.begin(), ends.end());
  std::sort(holdings.begin(), holdings.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::size_t ended = 0;
  for (std::size_t begun = 0; begun < holdings.size(); ++begun) {
    while (ended < ends.size() && ends[ended] <= holdings[begun].begin) ++ended;
    if (static_cast<std::int64_t>(begun + 1 - ended) > limit) return holdings[begun];
  }
  return std::nullopt;
}

class ScheduleCheck {
 public:
  ScheduleCheck(const Workload& workload, const Schedule& schedule, double tolerance)
      : workload_(workload), schedule_(schedule), tolerance_(tolerance), placed_(workload.tasks.size()) {}

  Status run() {
    for (const auto rule : {&ScheduleCheck::check_passes, &ScheduleCheck::check_tasks, &ScheduleCheck::check_end,
                            &ScheduleCheck::check_lanes, &ScheduleCheck::check_inputs, &ScheduleCheck::check_gradients,
                            &ScheduleCheck::check_slots, &ScheduleCheck::check_in_flight}) {
      if (Status broken = (this->*rule)(); !broken.ok()) return broken;
    }
    return {};
  }

 private:
  static Status broken(const std::string& what) { return Error{ErrorCode::invalid_argument, "schedule: " + what}; }

  const WorkloadTask& task_of(const PlannedPass& pass) const { return workload_.tasks[pass.task]; }
  const WorkloadSection& section_of(std::size_t task) const {
    return workload_.sections[workload_.tasks[task].section];
  }
  std::string place(std::size_t task, std::int64_t replica) const {
    return section_of(task).name + " replica " + std::to_string(replica) + ", sample " +
           std::to_string(workload_.tasks[task].sample);
  }
  std::string place(const PlannedPass& pass) const {
    return place(pass.task, pass.replica) + ": its " + (pass.backward ? "backward" : "forward") + " pass";
  }

  /// Checks each pass by itself.
  Status check_passes() {
    double latest_start = 0;
    for (const PlannedPass& pass : schedule_.passes) {
      if (pass.task >= workload_.tasks.size()) {
        return broken("a pass of task " + std::to_string(pass.task) + ", but the workload has " +
                      std::to_string(workload_.tasks.size()) + " tasks");
      }
      const WorkloadSection& section = section_of(pass.task);
      if (pass.replica < 0 || pass.replica >= section.replicas) {
        return broken(place(pass) + " is on a replica that is not there; " + section.name + " has " +
                      std::to_string(section.replicas));
      }
      if (pass.backward && !section.has_backward)
        return broken(place(pass) + " is not allowed: the section is not trained");
      if (!std::isfinite(pass.start_ms) || !std::isfinite(pass.end_ms) || pass.start_ms < -tolerance_) {
        return broken(place(pass) + " runs from " + milliseconds(pass.start_ms) + " to " + milliseconds(pass.end_ms));
      }
      const double cost =
          (pass.backward ? task_of(pass).backward_ms : task_of(pass).forward_ms) / section.speed(pass.replica);
      if (std::abs(pass.end_ms - pass.start_ms - cost) > tolerance_) {
        return broken(place(pass) + " runs from " + milliseconds(pass.start_ms) + " to " + milliseconds(pass.end_ms) +
                      ", but takes " + milliseconds(cost));
      }
      if (pass.start_ms < latest_start - tolerance_) {
        return broken(place(pass) + " starts at " + milliseconds(pass.start_ms) +
                      ", but is listed after one that starts at " + milliseconds(latest_start));
      }
      latest_start = std::max(latest_start, pass.start_ms);
    }
    return {};
  }

  /// Checks that each task has exactly one forward pass and, if trained, one backward pass on its lane.
  Status check_tasks() {
    for (const PlannedPass& pass : schedule_.passes) {
      const PlannedPass*& known = pass.backward ? placed_[pass.task].backward : placed_[pass.task].forward;
      if (known != nullptr) {
        return broken(place(pass) + " is there twice, at " + milliseconds(known->start_ms) + " and at " +
                      milliseconds(pass.start_ms));
      }
      known = &pass;
    }
    for (std::size_t task = 0; task < placed_.size(); ++task) {
      const auto& [forward, backward] = placed_[task];
      const bool needs_backward = section_of(task).has_backward;
      if (forward == nullptr || (needs_backward && backward == nullptr)) {
        return broken(section_of(task).name + ", sample " + std::to_string(workload_.tasks[task].sample) + ": its " +
                      (forward == nullptr ? "forward" : "backward") + " pass is missing");
      }
      if (needs_backward && forward->replica != backward->replica) {
        return broken(place(*backward) + " at " + milliseconds(backward->start_ms) + " is on another replica than " +
                      "its forward pass at " + milliseconds(forward->start_ms) + " on replica " +
                      std::to_string(forward->replica));
      }
    }
    return {};
  }

  Status check_end() {
    double end = 0;
    for (const PlannedPass& pass : schedule_.passes) end = std::max(end, pass.end_ms);
    if (std::abs(end - schedule_.makespan_ms) <= tolerance_) return {};
    return broken("makespan is " + milliseconds(schedule_.makespan_ms) + ", but its last pass ends at " +
                  milliseconds(end));
  }

  /// Checks that passes on a lane, and on a device that several lanes share, do not overlap.
  Status check_lanes() {
    std::map<DeviceKey, const PlannedPass*> last;
    std::vector<const PlannedPass*> by_start;
    for (const PlannedPass& pass : schedule_.passes) by_start.push_back(&pass);
    std::stable_sort(by_start.begin(), by_start.end(), [](const auto* a, const auto* b) {
      return std::tie(a->start_ms, a->end_ms) < std::tie(b->start_ms, b->end_ms);
    });
    for (const PlannedPass* pass : by_start) {
      const std::size_t section = task_of(*pass).section;
      for (const DeviceKey& device : devices_of(workload_, section, pass->replica)) {
        const PlannedPass*& before = last[device];
        if (before != nullptr && pass->start_ms < before->end_ms - tolerance_) {
          const bool same_lane = task_of(*before).section == section && before->replica == pass->replica;
          return broken(place(*pass) + " starts at " + milliseconds(pass->start_ms) + ", before that of " +
                        (same_lane ? "sample " + std::to_string(task_of(*before).sample)
                                   : place(before->task, before->replica) + " on the same device " +
                                         std::to_string(device.second)) +
                        " ends at " + milliseconds(before->end_ms));
        }
        if (before == nullptr || pass->end_ms > before->end_ms) before = pass;
      }
    }
    return {};
  }

  Status check_inputs() {
    for (std::size_t task = 0; task < placed_.size(); ++task) {
      const PlannedPass& forward = *placed_[task].forward;
      for (const TaskInput& input : workload_.tasks[task].inputs) {
        const double ready = placed_[input.task].forward->end_ms + workload_.edges[input.edge].transfer_ms;
        if (forward.start_ms >= ready - tolerance_) continue;
        return broken(place(forward) + " starts at " + milliseconds(forward.start_ms) + ", before its input from " +
                      section_of(input.task).name + " is there at " + milliseconds(ready));
      }
      const PlannedPass* backward = placed_[task].backward;
      if (backward == nullptr || backward->start_ms >= forward.end_ms - tolerance_) continue;
      return broken(place(*backward) + " starts at " + milliseconds(backward->start_ms) +
                    ", before its forward pass ends at " + milliseconds(forward.end_ms));
    }
    return {};
  }

  /// Checks that backward passes wait for downstream sections: for their gradients or, if they are not trained, for
  /// their forward passes.
  Status check_gradients() {
    for (std::size_t task = 0; task < placed_.size(); ++task) {
      for (const TaskInput& input : workload_.tasks[task].inputs) {
        const PlannedPass* waiting = placed_[input.task].backward;
        if (waiting == nullptr) continue;
        const bool sends = section_of(task).has_backward;
        const double ready = sends ? placed_[task].backward->end_ms + workload_.edges[input.edge].transfer_ms
                                   : placed_[task].forward->end_ms;
        if (waiting->start_ms >= ready - tolerance_) continue;
        return broken(place(*waiting) + " starts at " + milliseconds(waiting->start_ms) + ", before " +
                      (sends ? "the gradient from " + section_of(task).name + " is there at "
                             : "the forward pass of " + section_of(task).name + " ends at ") +
                      milliseconds(ready));
      }
    }
    return {};
  }

  Status check_slots() {
    std::map<std::pair<std::size_t, std::int64_t>, std::vector<Holding>> rings;  // by edge and consumer lane
    for (std::size_t task = 0; task < placed_.size(); ++task) {
      const PlannedPass& forward = *placed_[task].forward;
      for (const TaskInput& input : workload_.tasks[task].inputs) {
        if (workload_.edges[input.edge].slots == no_limit) continue;
        rings[{input.edge, forward.replica}].push_back({placed_[input.task].forward->end_ms, forward.start_ms, task});
      }
    }
    for (const auto& [ring, holdings] : rings) {
      const WorkloadEdge& edge = workload_.edges[ring.first];
      const auto beyond = first_beyond(holdings, edge.slots, tolerance_);
      if (!beyond) continue;
      return broken(place(beyond->task, ring.second) + ": its input from " + workload_.sections[edge.from].name +
                    " is made at " + milliseconds(beyond->begin) + " and taken at " + milliseconds(beyond->end) +
                    ", but all " + std::to_string(edge.slots) + " slots of the edge hold others");
    }
    return {};
  }

  Status check_in_flight() {
    std::map<std::pair<std::size_t, std::int64_t>, std::vector<Holding>> lanes;
    for (std::size_t task = 0; task < placed_.size(); ++task) {
      const auto& [forward, backward] = placed_[task];
      if (backward == nullptr || section_of(task).max_in_flight == no_limit) continue;
      lanes[{workload_.tasks[task].section, forward->replica}].push_back({forward->start_ms, backward->end_ms, task});
    }
    for (const auto& [lane, holdings] : lanes) {
      const std::int64_t limit = workload_.sections[lane.first].max_in_flight;
      const auto beyond = first_beyond(holdings, limit, tolerance_);
      if (!beyond) continue;
      return broken(place(beyond->task, lane.second) + " is in flight from " + milliseconds(beyond->begin) + " to " +
                    milliseconds(beyond->end) + ", but max_in_flight " + std::to_string(limit) +
                    " is taken by others at its start");
    }
    return {};
  }

  const Workload& workload_;
  const Schedule& schedule_;
  const double tolerance_;
  std::vector<TaskPasses> placed_;  // complete once check_tasks has passed
};

}  // namespace

Status check_schedule(const Workload& workload, const Schedule& schedule, double tolerance_ms) {
  return ScheduleCheck(workload, schedule, tolerance_ms).run();
}

std::vector<double> utilization(const Workload& workload, const Schedule& schedule) {
  std::vector<double> busy(workload.sections.size(), 0.0);
  for (const PlannedPass& pass : schedule.passes) {
    busy[workload.tasks[pass.task].section] += pass.end_ms - pass.start_ms;
  }
  for (std::size_t section = 0; section < busy.size(); ++section) {
    const double lanes = static_cast<double>(workload.sections[section].replicas);
    busy[section] = schedule.makespan_ms > 0 ? busy[section] / (lanes * schedule.makespan_ms) : 0.0;
  }
  return busy;
}

}  // namespace maestro
