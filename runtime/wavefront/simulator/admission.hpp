// SPDX-License-Identifier: Apache-2.0
// Decides which passes the slots of the edges allow, and takes and returns those slots during a simulation. Binds tasks
// with several limited inputs to lanes ahead of their start, as their slots must be on the same lane.
//
// AD-1 (all or none): admit() takes the slots of all outputs that the task must have together, or leaves slots,
// promises and lanes as they were. AD-2 (least backlog): of the lanes with enough slots, a task is bound to the lane
// that ends it first, after its earlier work and bound work; of equals, the first. AD-3 (early binding): the slots of
// an early task are reserved on its lane before its inputs are made, and stay reserved until it starts.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/wavefront/planning_graph.hpp"
#include "runtime/wavefront/simulator/dispatch_rules.hpp"
#include "runtime/wavefront/simulator/lanes.hpp"
#include "runtime/wavefront/slot_ledger.hpp"

namespace maestro {

/// Not thread-safe; no allocation after the first run. Times never decrease from call to call.
class Admission {
 public:
  /// Both must outlive it.
  Admission(const PlanningGraph& graph, const Lanes& lanes);

  /// Frees all slots and unbinds all tasks, except by DispatchRules::fixed_lane. `rules` must outlive the simulation.
  void reset(const DispatchRules& rules);
  /// Takes all slots at the start of passes from now on.
  void stop_foreseeing();

  /// Returns the lane that the task runs on, ran on, or has slots reserved on; -1 if there is none yet.
  [[nodiscard]] int lane_of(int task) const { return lane_of_[task]; }
  /// Returns whether the slots of the task's outputs are taken.
  [[nodiscard]] bool admitted(int task) const { return admitted_[task] != 0; }
  /// Returns whether the slots of the task's outputs are taken when its pass ends.
  [[nodiscard]] bool admits_at_end(int task) const { return at_end_[graph_.tasks[task].task_class] != 0; }
  /// Returns whether the task's outputs let it start. True even if admit() finds too few slots for several consumers at
  /// once.
  [[nodiscard]] bool may_start(int task) { return admits_at_end(task) || may_admit(task); }
  /// Returns whether the task's inputs let it start on the lane: whether they can have been in slots of this lane since
  /// they were made.
  [[nodiscard]] bool may_take(int lane, int task) { return !graph_.class_of(task).limited || inputs_fit(lane, task); }

  /// Takes the slots that the outputs of the task will need; returns false, without effect, if there are too few.
  [[nodiscard]] bool admit(int task);
  /// Starts the task on the lane: takes its inputs out of their slots or, if it is not admitted yet, sets those slots
  /// aside. Needs may_take().
  void take_inputs(int lane, int task, double now_ms);
  /// Returns the slots of the inputs of a task that was admitted after its start, as of `start_ms`.
  void free_inputs(int lane, int task, double start_ms);
  /// Puts the inputs of a task that is not admitted, and does not start after all, back into their slots.
  void put_inputs_back(int lane, int task);
  /// Records that the output over an edge with limited slots for the task `link.task` is made.
  void input_made(const PlanningGraph::Link& link, double now_ms);

  /// Returns whether slots became free since the last call.
  bool take_slots_freed() { return std::exchange(slots_freed_, false); }
  [[nodiscard]] bool slots_freed() const { return slots_freed_; }
  [[nodiscard]] const SlotLedger& ledger(int edge) const { return ledgers_[edge]; }
  /// Returns the work of tasks that are bound to the lane and have not started.
  [[nodiscard]] double bound_work_ms(int lane) const { return bound_work_ms_[lane]; }
  /// Returns the steps of all simulations so far (Simulator::steps()).
  [[nodiscard]] std::int64_t steps() const { return steps_; }

 private:
  struct Reservation {
    int task = 0;
    int need = 0;
    int count = 0;
  };
  static constexpr int all_edges = -1;

  void find_classes_at_end();
  [[nodiscard]] bool inputs_fit(int lane, int task);
  [[nodiscard]] bool may_admit(int task) {
    const PlanningGraph::Class& kind = graph_.class_of(task);
    return has_slots(kind) && (!(kind.binds || kind.joins) || may_reserve_for_consumers(task));
  }
  [[nodiscard]] bool has_slots(const PlanningGraph::Class& kind) const;
  [[nodiscard]] bool may_hold(int edge, int count) const;
  [[nodiscard]] bool may_reserve_for_consumers(int task);
  bool reserve_for_consumers(int task);
  bool reserve(int task, int edge);
  bool promise_together(int task, int edge);
  [[nodiscard]] bool may_promise_together(int task, int edge) const;
  void cancel_fresh();
  void cancel(const Reservation& reservation);
  [[nodiscard]] int lane_for(int task, int edge);
  [[nodiscard]] bool can_reserve(int task, int edge, int lane) const;
  [[nodiscard]] bool whole_tasks() const { return rules_->discipline == DispatchRules::Discipline::list; }
  [[nodiscard]] double work_ms(int lane, int task) const {
    return graph_.forward_ms(lane, task) + graph_.backward_ms(lane, task);
  }

  const PlanningGraph& graph_;
  const Lanes& lanes_;
  const DispatchRules* rules_ = nullptr;
  std::vector<SlotLedger> ledgers_;     // ledgers by edge
  std::vector<int> most_waiting_;       // by edge, from DispatchRules::depth
  std::vector<int> lane_of_;            // by task
  std::vector<char> admitted_;          // by task
  std::vector<char> at_end_;            // by class
  std::vector<double> bound_work_ms_;   // by lane
  std::vector<double> reserved_units_;  // by need of an early task: the time since when each is free
  std::vector<int> reserved_;           // by need: units reserved or promised
  std::vector<double> produced_ms_;     // by need: time at which its first input was made
  std::vector<Reservation> fresh_;      // reservations of the task that is being admitted
  bool foreseeing_ = true;
  bool slots_freed_ = false;
  std::int64_t steps_ = 0;
};

}  // namespace maestro
