// SPDX-License-Identifier: Apache-2.0
// Rules for building a schedule in the simulator: task orders and switches. Plain data.
#pragma once

#include <vector>

namespace maestro {

/// Theta that puts every forward pass first.
inline constexpr double forward_first = 1e9;

struct DispatchRules {
  enum class Discipline {
    list,           ///< the most urgent task that is ready and that the limits allow
    lane_order,     ///< each lane exactly in order; needs fixed_lane
    section_order,  ///< forward passes of a section start exactly in order, over all its lanes
  };
  /// All tasks: section 0's first, then section 1's, ...; within a section the most urgent first.
  std::vector<int> order;
  /// By section: forward before a waiting gradient while (outputs made and not taken + in production) is less than this
  /// share of the consumer lanes. 0: gradients first. A section that feeds nobody: only with forward_first.
  std::vector<double> theta;
  /// By edge: inputs that may wait for late-bound consumers, per consumer lane, in addition to the inputs that fill the
  /// slots of a single lane. Fewer than the slots, because inputs in all slots leave the lanes no choice, not even a
  /// lane that is busy for long. Empty: limited only by the slots.
  std::vector<double> depth;
  /// Replica that each task must run on. Empty: any. Needs Binding::early and an order as discipline.
  std::vector<int> fixed_lane;
  Discipline discipline = Discipline::list;
  /// Order of waiting inputs: first the input whose gradient its producer's lane will need soonest; else by order.
  bool hungry_producers_first = false;
  /// Order of gradients: the section's order; else the oldest first.
  bool ordered_gradients = false;
  /// Priority of sections whose lanes share a device: later or earlier trained sections before all sections that are
  /// not trained; or all earlier sections first.
  enum class DeviceOrder { trained_behind, trained_ahead, ahead };
  DeviceOrder device_order = DeviceOrder::trained_behind;
  /// Choice among several idle lanes: the highest number; else the lowest.
  bool last_lane_first = false;
  /// Choice among several equally fast idle lanes: the next after the last that started a task. If lanes wait for
  /// tasks, each gets as many as the others.
  bool lanes_in_turn = false;
  /// A lane leaves a task to the faster lanes of its section if some of them run passes and they can do all tasks that
  /// have not started before the lane would end the task.
  bool await_faster = false;
  /// A task that feeds nobody runs backward right after forward.
  bool whole_tasks = true;
  /// A pass that waited for a slot starts as if the time at which the slot becomes free had been known: slots are full
  /// only from the end of a pass. They are taken at its end, which waits until they are free, as does its start; its
  /// inputs keep their slots until then, because they leave at its start. If slots of a task's inputs were reserved
  /// ahead, they are taken when it starts, as much earlier as its lane was idle.
  bool foresee_slots = true;
  /// By section: with foresee_slots, all slots are taken when the pass starts after all, so that another task can run
  /// while there are none. Empty: in no section.
  std::vector<char> slots_at_start;
  /// Slots of tasks that feed tasks with several limited inputs: whether the slots of all these inputs are taken
  /// together, which keeps sections from filling slots with inputs that wait for each other, and whether at the start.
  enum class JointSlots { all_at_start, all_at_end, each_at_end };
  JointSlots joint_slots = JointSlots::all_at_start;
};

}  // namespace maestro
