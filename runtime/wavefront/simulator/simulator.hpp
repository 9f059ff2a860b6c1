// SPDX-License-Identifier: Apache-2.0
// Builds a schedule in virtual time from dispatch rules: an event-driven list scheduler with slots, in-flight limits,
// transfers, re-entrant backward passes and shared devices. Every policy evaluates its candidates with it.
//
// VT-1 (legal): a schedule that ends obeys workload.hpp; rules that deadlock cost infinity instead.
// VT-2 (repeatable): the schedule depends only on the graph and the rules.
// VT-3 (work conserving): no lane idles while it has a pass that the rules and the limits allow.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/wavefront/planning_graph.hpp"
#include "runtime/wavefront/schedule.hpp"
#include "runtime/wavefront/simulator/admission.hpp"
#include "runtime/wavefront/simulator/dispatch.hpp"
#include "runtime/wavefront/simulator/dispatch_rules.hpp"
#include "runtime/wavefront/simulator/event_queue.hpp"
#include "runtime/wavefront/simulator/lanes.hpp"

namespace maestro {

/// Not thread-safe: it owns the state of an evaluation. No allocation after the first run.
class Simulator {
 public:
  /// `graph` must outlive it.
  explicit Simulator(const PlanningGraph& graph);
  Simulator(const Simulator&) = delete;  // its parts refer to each other
  Simulator& operator=(const Simulator&) = delete;

  /// Returns the milliseconds to the end of the last pass. Infinity: the rules deadlock, or every such schedule is
  /// longer than `cutoff_ms`.
  double run(const DispatchRules& rules, double cutoff_ms);
  /// Returns the task whose pass ended last in the latest run.
  [[nodiscard]] int last_task() const { return last_task_; }
  /// Returns the total time that a section's lanes waited before their latest passes in the latest run, weighted by
  /// their speeds. Only for sections that share no devices.
  [[nodiscard]] double idle_ms(int section) const { return idle_ms_[section]; }
  /// Returns the sum over all lanes of the time from `due_ms` to their last ends in the latest run, if these are later.
  [[nodiscard]] double late_ms(double due_ms) const { return lanes_.late_ms(due_ms); }
  /// Returns the steps of all runs so far, each of about the same time: the measure of a budget that must not depend on
  /// clocks.
  [[nodiscard]] std::int64_t steps() const { return steps_ + admission_.steps() + dispatch_.steps(); }
  /// Returns the schedule of `rules`, which run() has found to end. Passes are sorted by start, then end.
  Schedule schedule(const DispatchRules& rules);

 private:
  struct DevicesState {
    int busy = 0;              // passes on the set, or on sets that overlap with it
    double idle_since_ms = 0;  // time since all of them are idle
  };
  struct TaskState {
    int backward_needs = 0;
    double ready_ms = 0;  // time at which the last input arrived
  };

  void reset(const DispatchRules& rules);
  void process_events();
  void deliver_input(int task);
  void deliver_gradient(int task);

  void dispatch_all();
  void dispatch(int section);
  void start_next(int lane, bool& section_waits);
  void start_forward(int lane, int task);
  void start_backward(int lane);
  void begin_pass(int lane, const Lanes::Pass& pass);
  [[nodiscard]] bool runs_whole(int task) const;

  void finish_pass(int lane);
  void finish_at_end(int lane);
  void leave(int lane);
  void record(int lane);
  void finish_forward(int task);
  void finish_backward(int task);

  void settle_blocked();
  void withdraw(int lane);
  bool withdraw_all();

  void mark(int section) { marked_[section] = any_marked_ = 1; }
  /// Counts a pass that begins (1) or ends (-1) on a lane.
  DevicesState& count_pass(int lane, int change) {
    const int set = graph_.lanes[lane].devices;
    for (const int other : graph_.device_sets[set].overlapping) devices_[other].busy += change;
    devices_[set].busy += change;
    return devices_[set];
  }
  void mark_devices(int lane) {
    for (const int section : graph_.device_sets[graph_.lanes[lane].devices].sections) mark(section);
  }

  const PlanningGraph& graph_;
  const DispatchRules* rules_ = nullptr;
  EventQueue events_;  // transfers of inputs by edge, then of gradients by edge
  Lanes lanes_;
  Admission admission_;
  Dispatch dispatch_;
  std::vector<DevicesState> devices_;  // by set
  std::vector<TaskState> tasks_;
  std::vector<TaskState> fresh_tasks_;  // before the first pass
  std::vector<int> blocked_;            // lanes whose pass has ended except for a slot, the longest wait first
  std::vector<double> idle_ms_;         // by section: over its lanes, before their latest passes
  std::vector<int> turns_;              // by section: the lane that is looked at first
  std::vector<char> marked_;            // by section: may have a pass to start
  char any_marked_ = 0;                 // some section, or a blocked pass
  std::vector<PlannedPass>* record_ = nullptr;
  double cutoff_ms_ = 0;
  double makespan_ms_ = 0;
  int last_task_ = 0;
  int passes_left_ = 0;
  bool hopeless_ = false;  // longer than the cutoff in any case
  std::int64_t steps_ = 0;
};

}  // namespace maestro
