// SPDX-License-Identifier: Apache-2.0
// A workload laid out flat for the simulator: lanes and device sets numbered consecutively, links of tasks as index
// ranges, tasks sorted into classes that wait for the same things. Built once per plan; read by every evaluation.
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "runtime/wavefront/workload.hpp"

namespace maestro {

inline constexpr int unlimited = std::numeric_limits<int>::max();

/// Time at which a task with limited slots on its inputs gets its lane.
enum class Binding {
  late,   ///< when it starts; with several inputs over an edge still early, as the same lane must hold them
  mixed,  ///< late, but early for all tasks with several limited inputs, whose lanes could run out of common slots
  early,  ///< with the first of its producers
};

struct PlanningGraph {
  struct Section {
    int first_lane = 0;
    int lanes = 0;
    int first_task = 0;  ///< first place in orders, which list section 0's tasks first, then section 1's, ...
    int tasks = 0;
    int first_class = 0;
    int classes = 0;
    bool has_backward = true;
    int max_in_flight = unlimited;
    double work_ms = 0;  ///< work on its fastest lanes
    double mean_forward_ms = 0;
    double rate = 0;         ///< sum of the speeds of its lanes
    int consumer_lanes = 0;  ///< over all edges that leave it
    bool shared = false;     ///< some lane shares a device
  };
  struct Edge {
    int from = 0;
    int to = 0;
    int slots = unlimited;
    double transfer_ms = 0;
    int links = 0;
  };
  struct Lane {
    int section = 0;
    int devices = 0;  ///< device set
    int replica = 0;  ///< replica of its section; the fastest lanes come first
    double speed = 1;
    double faster = 0;  ///< sum of the speeds of its section's faster lanes
  };
  /// Devices that a pass occupies, all at once.
  struct DeviceSet {
    std::vector<int> overlapping;  ///< other sets with some device of this set
    std::vector<int> sections;     ///< sections with lanes on this set and on overlapping sets, an entry for each lane
  };
  struct Link {
    int edge = 0;
    int task = 0;  ///< task at the other end
  };
  struct Task {
    int section = 0;
    int task_class = 0;
    double forward_ms = 0;
    double backward_ms = 0;
    int in_begin = 0, in_end = 0;      ///< range in `inputs`; see inputs_of()
    int out_begin = 0, out_end = 0;    ///< range in `outputs`; see outputs_of()
    int need_begin = 0, need_end = 0;  ///< range in `needs`; see needs_of()
    bool early = false;                ///< slots are reserved for it with its first producer
    int backward_needs = 0;            ///< passes before the backward pass: its forward pass, and each consumer's
  };
  /// Slots that a task takes, or that its outputs take, on an edge with limited slots.
  struct Need {
    int edge = 0;
    int count = 0;
    int first_unit = 0;  ///< first of the units reserved for it
    int number = 0;      ///< place in `needs`; 0 for a promise
    friend auto operator<=>(const Need&, const Need&) = default;
  };
  /// Tasks of a section that wait on the same edges and feed the same edges.
  struct Class {
    int section = 0;
    bool fed = false;            ///< they have inputs
    bool early = false;          ///< they have slots reserved on a lane before they are ready
    bool limited = false;        ///< they have inputs with limited slots
    bool binds = false;          ///< a start must find lanes for early consumers
    bool joins = false;          ///< they feed late consumers with inputs over other limited edges
    std::vector<Need> promises;  ///< slots of the other late consumers, by edge
    friend auto operator<=>(const Class&, const Class&) = default;
  };

  PlanningGraph(const Workload& workload, Binding binding);

  /// Returns the producers of the task's inputs, each with the edge between them.
  [[nodiscard]] std::span<const Link> inputs_of(std::integral auto task) const {
    return {inputs.data() + tasks[task].in_begin, inputs.data() + tasks[task].in_end};
  }
  /// Returns the consumers of the task's output, each with the edge between them.
  [[nodiscard]] std::span<const Link> outputs_of(std::integral auto task) const {
    return {outputs.data() + tasks[task].out_begin, outputs.data() + tasks[task].out_end};
  }
  /// Returns the slots that the task's inputs take on edges with limited slots, by edge.
  [[nodiscard]] std::span<const Need> needs_of(std::integral auto task) const {
    return {needs.data() + tasks[task].need_begin, needs.data() + tasks[task].need_end};
  }
  [[nodiscard]] const Section& section_of(std::integral auto task) const { return sections[tasks[task].section]; }
  [[nodiscard]] const Class& class_of(std::integral auto task) const { return classes[tasks[task].task_class]; }
  /// Returns the lane's replica number in its section.
  [[nodiscard]] int replica_of(int lane) const { return lanes[lane].replica; }
  /// Returns the lane of a replica.
  [[nodiscard]] int lane_of(int section, int replica) const {
    return replica_lanes[sections[section].first_lane + replica];
  }
  /// Returns the milliseconds of the task's passes on the lane.
  [[nodiscard]] double forward_ms(int lane, int task) const { return tasks[task].forward_ms / lanes[lane].speed; }
  [[nodiscard]] double backward_ms(int lane, int task) const { return tasks[task].backward_ms / lanes[lane].speed; }

  /// Returns whether some section has lanes of different speeds.
  [[nodiscard]] bool has_slower_lanes() const {
    return std::ranges::any_of(lanes, [](const Lane& lane) { return lane.speed < 1; });
  }
  [[nodiscard]] bool has_joint_tasks() const {
    return std::any_of(tasks.begin(), tasks.end(),
                       [](const Task& task) { return task.need_end - task.need_begin > 1; });
  }

  std::vector<Section> sections;
  std::vector<Edge> edges;
  std::vector<Lane> lanes;
  std::vector<int> replica_lanes;  ///< lanes by section, in it by replica
  std::vector<DeviceSet> device_sets;
  std::vector<Task> tasks;
  std::vector<Link> inputs;
  std::vector<Link> outputs;
  std::vector<Need> needs;  ///< limited inputs of tasks
  std::vector<Class> classes;
  Binding binding;
  int passes = 0;
  int reserved_units = 0;  ///< units reserved for all early tasks

 private:
  void lay_out_devices(const Workload& workload);
  void lay_out_sections(const Workload& workload);
  void lay_out_tasks(const Workload& workload);
  void sort_into_classes();
};

}  // namespace maestro
