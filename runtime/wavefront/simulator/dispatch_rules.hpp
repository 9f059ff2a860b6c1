// SPDX-License-Identifier: Apache-2.0
// The rules from which the simulator builds a schedule: orders of tasks and switches. Plain data.
#pragma once

#include <vector>

namespace maestro {

/// A theta that puts every forward pass first.
inline constexpr double forward_first = 1e9;

struct DispatchRules {
  enum class Discipline {
    list,           ///< the most urgent task that is ready and that the limits allow
    lane_order,     ///< each lane exactly in order; needs fixed_lane
    section_order,  ///< forward passes of a section start exactly in order, over all its lanes
  };
  /// All tasks, those of section 0 first, then of section 1, ...; within a section the most urgent first.
  std::vector<int> order;
  /// By section: forward before a waiting gradient while (outputs made and not taken + in production) is less than this
  /// share of the consumer lanes. 0: gradients first. A section that feeds nobody: only with forward_first.
  std::vector<double> theta;
  /// By edge: inputs that may wait for consumers that are bound late, per consumer lane, beside those that fill the
  /// slots of a single lane. Less than the slots, as inputs in all slots leave the lanes no choice, not even a lane
  /// that is busy for long. Empty: no limit but the slots.
  std::vector<double> depth;
  /// By task, the replica it must run on. Empty: whichever takes it. Needs Binding::early and an order as discipline.
  std::vector<int> fixed_lane;
  Discipline discipline = Discipline::list;
  /// Of waiting inputs, first the input whose gradient its producer's lane will need soonest; else by order.
  bool hungry_producers_first = false;
  /// Gradients by the section's order; else the oldest first.
  bool ordered_gradients = false;
  /// The sections that go first where lanes share a device: of the trained sections those behind, or those ahead,
  /// before all sections that are not trained; or simply those ahead.
  enum class DeviceOrder { trained_behind, trained_ahead, ahead };
  DeviceOrder device_order = DeviceOrder::trained_behind;
  /// Of several idle lanes the lane with the highest number; else the lowest.
  bool last_lane_first = false;
  /// Of several idle lanes that are equally fast, the next behind the last that started a task: where they wait for
  /// tasks, each gets as many as the others.
  bool lanes_in_turn = false;
  /// A lane leaves a task to the faster lanes of its section where these, of which some run passes, can do all tasks
  /// that have not started before the lane would end the task.
  bool await_faster = false;
  /// A task that feeds nobody runs backward right after forward.
  bool whole_tasks = true;
  /// A pass that waited for a slot starts as if the time at which the slot becomes free had been known: slots are full
  /// from the end of a pass only. They are taken at its end, which waits until they are free, and its start with it;
  /// its inputs keep their slots until then, as they leave at its start. Of a task whose inputs had slots reserved
  /// ahead, the slots are taken when it starts, as much earlier as its lane was idle.
  bool foresee_slots = true;
  /// By section: with foresee_slots, all slots are taken when the pass starts after all, so that another task can run
  /// while there are none. Empty: nowhere.
  std::vector<char> slots_at_start;
  /// Of tasks that feed tasks with several limited inputs: whether the slots of all those inputs are taken together,
  /// which keeps sections from filling slots with inputs that wait for each other, and whether at the start.
  enum class JointSlots { all_at_start, all_at_end, each_at_end };
  JointSlots joint_slots = JointSlots::all_at_start;
};

}  // namespace maestro
