// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/bulk_synchronous.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/wavefront/safe_schedule.hpp"
#include "runtime/wavefront/task_graph.hpp"

namespace maestro {

namespace {

using Tasks = std::vector<std::size_t>;

std::int64_t group_of(const WorkloadSection& section, std::int64_t replica, std::int64_t groups) {
  return replica * groups / section.replicas;
}

/// Returns the fewest replicas of a section with tasks; 1 if devices are shared across groups, or lanes of different
/// speeds take different shares.
std::int64_t count_groups(const Workload& workload, const std::vector<std::size_t>& tasks_of_section) {
  std::int64_t groups = std::numeric_limits<std::int64_t>::max();
  for (std::size_t section = 0; section < workload.sections.size(); ++section) {
    if (tasks_of_section[section] == 0) continue;
    if (!workload.sections[section].speeds.empty()) return 1;
    groups = std::min(groups, workload.sections[section].replicas);
  }
  std::map<int, std::int64_t> device_group;
  for (const WorkloadSection& section : workload.sections) {
    for (std::size_t replica = 0; replica < section.devices.size(); ++replica) {
      const std::int64_t group = group_of(section, static_cast<std::int64_t>(replica), groups);
      for (const int device : section.devices[replica]) {
        if (device_group.try_emplace(device, group).first->second != group) return 1;
      }
    }
  }
  return groups;
}

/// Returns each task's group: components in order, the same number in each group. A single group if a component is
/// larger than a group's share.
std::vector<std::int64_t> share_out(const Workload& workload, std::int64_t& groups) {
  const std::vector<std::size_t> component = components_of(workload);
  std::map<std::size_t, std::map<std::size_t, std::size_t>> sizes;  // component -> section -> tasks
  std::vector<std::size_t> tasks_of_section(workload.sections.size());
  for (std::size_t task = 0; task < component.size(); ++task) {
    ++sizes[component[task]][workload.tasks[task].section];
    ++tasks_of_section[workload.tasks[task].section];
  }
  groups = count_groups(workload, tasks_of_section);
  for (const auto& [root, by_section] : sizes) {
    for (const auto& [section, size] : by_section) {
      const std::size_t share =
          (tasks_of_section[section] + static_cast<std::size_t>(groups) - 1) / static_cast<std::size_t>(groups);
      if (size > std::max<std::size_t>(share, 1)) groups = 1;
    }
  }
  // Components are in sample order, which micro-batches of the first sections number differently.
  std::vector<std::tuple<std::int64_t, std::size_t>> in_order;
  for (const auto& [root, by_section] : sizes) in_order.emplace_back(workload.tasks[root].sample, root);
  std::sort(in_order.begin(), in_order.end());
  std::map<std::size_t, std::int64_t> group;
  for (std::size_t n = 0; n < in_order.size(); ++n) {
    group[std::get<1>(in_order[n])] =
        static_cast<std::int64_t>(n) * groups / static_cast<std::int64_t>(in_order.size());
  }
  std::vector<std::int64_t> result;
  for (const std::size_t root : component) result.push_back(group[root]);
  return result;
}

/// Places that a group occupies between rounds. Copied to try whether another task fits.
struct Holdings {
  std::vector<std::int64_t> in_flight;                                 // by lane
  std::map<std::pair<std::size_t, std::int64_t>, std::int64_t> slots;  // by edge and consumer replica
  std::vector<std::int64_t> replica;                                   // by task, -1: none yet
  std::vector<std::int64_t> assigned;                                  // by lane, tasks in the step
  std::vector<char> started;                                           // by task
  std::vector<char> ends_here;                                         // by lane: a task that feeds nobody
};

/// Builds the passes of a group.
class Group {
 public:
  Group(const Workload& workload, const std::vector<std::vector<TaskConsumer>>& consumers, std::int64_t groups,
        std::int64_t number)
      : workload_(workload), consumers_(consumers), groups_(groups), number_(number) {
    for (const WorkloadSection& section : workload.sections) {
      first_lane_.push_back(lanes_);
      lanes_ += static_cast<std::size_t>(section.replicas);
    }
    held_.in_flight.resize(lanes_);
    held_.assigned.resize(lanes_);
    held_.ends_here.resize(lanes_);
    held_.replica.assign(workload.tasks.size(), -1);
    held_.started.resize(workload.tasks.size());
    forward_end_.resize(workload.tasks.size());
    backward_end_.assign(workload.tasks.size(), -1);
  }

  /// Returns false when a single path does not fit the limits.
  bool run(const Tasks& tasks, Schedule& schedule) {
    std::size_t next = 0;
    Tasks sinks;
    for (const std::size_t task : tasks) {
      if (consumers_[task].empty()) sinks.push_back(task);
    }
    while (next < sinks.size()) {
      Tasks round;
      for (; next < sinks.size(); ++next) {
        Holdings trial = held_;
        Tasks more;
        if (!add(sinks[next], trial, more)) break;
        held_ = std::move(trial);
        round.insert(round.end(), more.begin(), more.end());
      }
      if (round.empty()) return false;
      run_round(round, schedule);
    }
    return true;
  }

 private:
  [[nodiscard]] const WorkloadSection& section_of(std::size_t task) const {
    return workload_.sections[workload_.tasks[task].section];
  }
  [[nodiscard]] std::size_t lane_of(std::size_t task, std::int64_t replica) const {
    return first_lane_[workload_.tasks[task].section] + static_cast<std::size_t>(replica);
  }

  /// Puts the task and all tasks that it needs into the round; returns false if a limit forbids it.
  bool add(std::size_t task, Holdings& held, Tasks& round) const {
    if (held.started[task]) return true;
    held.started[task] = 1;
    for (const TaskInput& input : workload_.tasks[task].inputs) {
      if (!add(input.task, held, round)) return false;
    }
    if (!place(task, held)) return false;
    for (const TaskConsumer& consumer : consumers_[task]) {
      if (!place_input(consumer, held)) return false;
    }
    round.push_back(task);
    return true;
  }

  /// Chooses a replica of this group with room in flight for a task that starts: the replica with the fewest tasks
  /// relative to its speed, including this one.
  bool place(std::size_t task, Holdings& held) const {
    if (held.replica[task] < 0 && !choose_replica(task, held, std::nullopt)) return false;
    const std::size_t lane = lane_of(task, held.replica[task]);
    if (!has_room(task, lane, held)) return false;
    if (!consumers_[task].empty()) {
      held.in_flight[lane] += section_of(task).has_backward ? 1 : 0;
    } else {
      held.ends_here[lane] = 1;
    }
    return true;
  }

  [[nodiscard]] bool has_room(std::size_t task, std::size_t lane, const Holdings& held) const {
    const WorkloadSection& section = section_of(task);
    if (!section.has_backward || section.max_in_flight == no_limit) return true;
    const bool ends = held.ends_here[lane] || consumers_[task].empty();
    const bool stays = !consumers_[task].empty();
    return held.in_flight[lane] + (stays ? 1 : 0) + (ends ? 1 : 0) <= section.max_in_flight;
  }

  /// Takes a slot for an output, on its consumer's lane.
  bool place_input(const TaskConsumer& consumer, Holdings& held) const {
    const WorkloadEdge& edge = workload_.edges[consumer.edge];
    if (held.replica[consumer.task] < 0 && !choose_replica(consumer.task, held, consumer.edge)) return false;
    std::int64_t& used = held.slots[{consumer.edge, held.replica[consumer.task]}];
    return edge.slots == no_limit || ++used <= edge.slots;
  }

  bool choose_replica(std::size_t task, Holdings& held, std::optional<std::size_t> edge) const {
    const WorkloadSection& section = section_of(task);
    std::int64_t best = -1;
    for (std::int64_t replica = 0; replica < section.replicas; ++replica) {
      const std::size_t lane = lane_of(task, replica);
      if (group_of(section, replica, groups_) != number_ || !has_room(task, lane, held)) continue;
      if (edge && workload_.edges[*edge].slots != no_limit) {
        const auto used = held.slots.find({*edge, replica});
        if (used != held.slots.end() && used->second >= workload_.edges[*edge].slots) continue;
      }
      const auto share = [&](std::int64_t of) {
        return static_cast<double>(held.assigned[lane_of(task, of)] + 1) / section.speed(of);
      };
      if (best < 0 || share(replica) < share(best)) best = replica;
    }
    if (best < 0) return false;
    held.replica[task] = best;
    ++held.assigned[lane_of(task, best)];
    return true;
  }

  void run_round(const Tasks& round, Schedule& schedule) {
    held_.ends_here.assign(lanes_, 0);
    std::vector<Tasks> forward(workload_.sections.size());
    for (const std::size_t task : round) forward[workload_.tasks[task].section].push_back(task);
    for (const Tasks& tasks : forward) {
      if (tasks.empty()) continue;
      for (const std::size_t task : tasks) {
        run_forward(task, schedule);
        if (section_of(task).has_backward && consumers_[task].empty()) run_backward(task, schedule);
        if (section_of(task).has_backward && !consumers_[task].empty()) waiting_.push_back(task);
      }
      end_phase();
    }
    for (std::size_t section = workload_.sections.size(); section-- > 0;) run_gradients(section, schedule);
  }

  void run_gradients(std::size_t section, Schedule& schedule) {
    Tasks ready;
    for (const std::size_t task : waiting_) {
      if (workload_.tasks[task].section != section) continue;
      const bool whole = std::all_of(consumers_[task].begin(), consumers_[task].end(), [&](const TaskConsumer& user) {
        return section_of(user.task).has_backward ? backward_end_[user.task] >= 0 : held_.started[user.task] != 0;
      });
      if (whole) ready.push_back(task);
    }
    if (ready.empty()) return;
    for (const std::size_t task : ready) {
      run_backward(task, schedule);
      --held_.in_flight[lane_of(task, held_.replica[task])];
    }
    std::erase_if(waiting_, [&](std::size_t task) { return backward_end_[task] >= 0; });
    end_phase();
  }

  void run_forward(std::size_t task, Schedule& schedule) {
    double start = phase_start_;
    for (const TaskInput& input : workload_.tasks[task].inputs) {
      start = std::max(start, forward_end_[input.task] + workload_.edges[input.edge].transfer_ms);
      --held_.slots[{input.edge, held_.replica[task]}];
    }
    forward_end_[task] = run_pass(task, false, start, workload_.tasks[task].forward_ms, schedule);
  }

  void run_backward(std::size_t task, Schedule& schedule) {
    double start = std::max(phase_start_, forward_end_[task]);
    for (const TaskConsumer& user : consumers_[task]) {
      const double sent = section_of(user.task).has_backward
                              ? backward_end_[user.task] + workload_.edges[user.edge].transfer_ms
                              : forward_end_[user.task];
      start = std::max(start, sent);
    }
    backward_end_[task] = run_pass(task, true, start, workload_.tasks[task].backward_ms, schedule);
  }

  double run_pass(std::size_t task, bool backward, double start, double length, Schedule& schedule) {
    const std::int64_t replica = held_.replica[task];
    const std::vector<DeviceKey> devices = devices_of(workload_, workload_.tasks[task].section, replica);
    for (const DeviceKey& device : devices) start = std::max(start, device_free_[device]);
    const double end = start + length / section_of(task).speed(replica);
    for (const DeviceKey& device : devices) device_free_[device] = end;
    phase_end_ = std::max(phase_end_, end);
    schedule.passes.push_back({task, backward, replica, start, end, number_, phase_});
    return end;
  }

  void end_phase() {
    ++phase_;
    phase_start_ = phase_end_;
  }

  const Workload& workload_;
  const std::vector<std::vector<TaskConsumer>>& consumers_;
  const std::int64_t groups_;
  const std::int64_t number_;
  std::vector<std::size_t> first_lane_;
  std::size_t lanes_ = 0;
  Holdings held_;
  Tasks waiting_;  // forward done, gradient not yet there
  std::vector<double> forward_end_;
  std::vector<double> backward_end_;
  std::map<DeviceKey, double> device_free_;
  double phase_start_ = 0;
  double phase_end_ = 0;
  std::int64_t phase_ = 0;
};

std::optional<Schedule> run_groups(const Workload& workload, const std::vector<std::int64_t>& group,
                                   std::int64_t groups) {
  const auto consumers = consumers_of(workload);
  Schedule schedule;
  for (std::int64_t number = 0; number < groups; ++number) {
    Tasks tasks;
    for (std::size_t task = 0; task < group.size(); ++task) {
      if (group[task] == number) tasks.push_back(task);
    }
    std::stable_sort(tasks.begin(), tasks.end(),
                     [&](std::size_t a, std::size_t b) { return workload.tasks[a].sample < workload.tasks[b].sample; });
    if (!Group(workload, consumers, groups, number).run(tasks, schedule)) return std::nullopt;
  }
  return schedule;
}

/// Runs a single pass at a time, each in a separate phase: as if all lanes shared a device.
Result<Schedule> strictly_serial(Workload workload) {
  for (WorkloadSection& section : workload.sections)
    section.devices.assign(static_cast<std::size_t>(section.replicas), {0});
  Result<Schedule> schedule = serial_schedule(workload);
  if (!schedule) return schedule;
  std::int64_t phase = 0;
  for (PlannedPass& pass : schedule->passes) pass.phase = phase++;
  return schedule;
}

void finish(Schedule& schedule) {
  std::stable_sort(schedule.passes.begin(), schedule.passes.end(), [](const PlannedPass& a, const PlannedPass& b) {
    return std::tie(a.start_ms, a.end_ms) < std::tie(b.start_ms, b.end_ms);
  });
  schedule.makespan_ms = 0;
  for (const PlannedPass& pass : schedule.passes) schedule.makespan_ms = std::max(schedule.makespan_ms, pass.end_ms);
}

}  // namespace

Result<Schedule> BulkSynchronousPolicy::plan(const Workload& workload) const {
  if (workload.tasks.empty()) return Schedule{};
  std::int64_t groups = 1;
  std::vector<std::int64_t> group = share_out(workload, groups);
  std::optional<Schedule> schedule = run_groups(workload, group, groups);
  if (!schedule && groups > 1) schedule = run_groups(workload, std::vector<std::int64_t>(group.size(), 0), 1);
  if (!schedule) {
    Result<Schedule> serial = strictly_serial(workload);
    if (!serial) return serial;
    schedule = std::move(*serial);
  }
  finish(*schedule);
  return std::move(*schedule);
}

}  // namespace maestro
