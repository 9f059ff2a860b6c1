// SPDX-License-Identifier: Apache-2.0
// Builds one schedule in virtual time from dispatch rules: an event-driven list scheduler that knows slots, in-flight
// limits, transfers, re-entrant backward passes and shared devices. What every policy is evaluated with.
//
// SI-1: a schedule that ends obeys workload.hpp; rules that deadlock cost infinity instead.
// SI-2: the answer depends on the graph and the rules alone.
// SI-3: no lane idles while it has a pass that the rules and the limits allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/wavefront/planning_graph.hpp"
#include "runtime/wavefront/rank_set.hpp"
#include "runtime/wavefront/schedule.hpp"
#include "runtime/wavefront/slot_ledger.hpp"

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
  /// slots of one lane. Less than the slots, as inputs in all slots leave the lanes no choice, not even one that is
  /// busy for long.
  std::vector<double> depth;
  /// By task, the replica it must run on. Empty: whichever takes it. Needs Binding::early.
  std::vector<int> fixed_lane;
  Discipline discipline = Discipline::list;
  /// Of waiting inputs, first the one whose gradient its producer's lane will need soonest; else by order.
  bool hungry_producers_first = false;
  /// Gradients by the section's order; else the oldest first.
  bool ordered_gradients = false;
  /// Which sections go first where lanes share a device: of the trained ones those behind, or those ahead, before all
  /// that are not trained; or simply those ahead.
  enum class DeviceOrder { trained_behind, trained_ahead, ahead };
  DeviceOrder device_order = DeviceOrder::trained_behind;
  /// Of several idle lanes the one with the highest number; else the lowest.
  bool last_lane_first = false;
  /// A task that feeds nobody runs backward right after forward.
  bool whole_tasks = true;
  /// A pass that waited for a slot starts as if it had known when the slot would be free: slots are full from the end
  /// of a pass only. They are taken at its end, which waits until they are free, and its start with it; its inputs keep
  /// their slots until then, as they leave at its start. Of a task whose inputs had slots reserved ahead, the slots are
  /// taken when it starts, as much earlier as its lane was idle.
  bool foresee_slots = true;
  /// By section: with foresee_slots, all slots are taken when the pass starts after all, so that another task can run
  /// while there are none. Empty: nowhere.
  std::vector<char> slots_at_start;
  /// Of tasks that feed tasks with several limited inputs: whether the slots of all those inputs are taken together,
  /// which keeps sections from filling slots with inputs that wait for each other, and whether at the start.
  enum class JointSlots { all_at_start, all_at_end, each_at_end };
  JointSlots joint_slots = JointSlots::all_at_start;
};

/// Not thread-safe: it owns the state of one evaluation. No allocation after the first run.
class Simulator {
 public:
  /// `graph` must outlive it.
  explicit Simulator(const PlanningGraph& graph);

  /// Milliseconds to the end of the last pass. Infinity: the rules deadlock, or every such schedule is longer than
  /// `cutoff_ms`.
  double run(const DispatchRules& rules, double cutoff_ms);
  /// Of the latest run, the task whose pass ended last.
  [[nodiscard]] int last_task() const { return last_task_; }
  /// Of the latest run, summed over the lanes of a section: how long they waited before their last passes. Only of
  /// sections that share no devices.
  [[nodiscard]] double idle_ms(int section) const { return idle_ms_[static_cast<std::size_t>(section)]; }
  /// Of the latest run, summed over all lanes: from `due_ms` to their last ends, where these are later.
  [[nodiscard]] double late_ms(double due_ms) const;
  /// Steps of all runs so far, each of about the same time: what a budget can count where clocks must not matter.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  /// The schedule of `rules`, which run() has found to end. Passes by start, then end.
  Schedule schedule(const DispatchRules& rules);

 private:
  struct LaneState {
    int task = -1;  // that runs
    bool backward = false;
    bool whole = false;  // forward and backward in one
    int in_flight = 0;
    int first_gradient = -1, last_gradient = -1;  // list through next_gradient_
    double gradient_work_ms = 0;                  // of the gradients in the list
    double bound_work_ms = 0;                     // of tasks with slots reserved here that have not started
    double busy_from = 0;
    double busy_until = 0;
    std::size_t next_in_order = 0;  // of lane_queue_
  };
  struct DeviceState {
    bool busy = false;
    double idle_since = 0;
  };
  struct TaskState {
    int forward_needs = 0;
    int backward_needs = 0;
    int lane = -1;           // where it runs, ran, or has slots reserved
    bool admitted = false;   // its outputs have their slots
    double ready_ms = 0;     // when the last input arrived
    double produced_ms = 0;  // when the first of its inputs with limited slots was made
  };
  struct PassEnd {
    double at = 0;
    int lane = 0;
  };
  struct Arrival {
    double at = 0;
    int task = 0;
  };
  /// Things on their way over an edge, in order: transfers of one edge take equally long.
  struct Transit {
    std::vector<Arrival> queue;
    std::size_t next = 0;
  };
  struct Reservation {
    int task = 0;
    int need = 0;
    int count = 0;
  };
  enum class Waiting { no, lane, section };  // why a lane found no task: its own state, or the section's

  void reset(const DispatchRules& rules);
  void queue_by_lane();
  double next_event() const;
  void process_until_now();
  void send(std::size_t transit, double arrival_ms, int task);
  void finish_pass(int lane);
  void leave(int lane);
  void settle_blocked();
  void withdraw(int lane);
  bool withdraw_all();
  void finish_at_end(int lane);
  void finish_forward(int task);
  void finish_backward(int task);
  void deliver_input(int task);
  void deliver_gradient(int task);

  void dispatch_all();
  void dispatch(int section);
  bool start_next(int lane, Waiting& waiting);
  int pick_forward(int lane, Waiting& waiting);
  int pick_listed(int lane, Waiting& waiting);
  int pick_from_class(int lane, int class_index, int first_rank) const;
  int pick_in_order(int lane);
  [[nodiscard]] bool may_take(int lane, int task) const;
  [[nodiscard]] double hunger(int task) const;
  [[nodiscard]] bool admits_at_end(int task) const;
  [[nodiscard]] bool has_slots(const PlanningGraph::Class& kind) const;
  [[nodiscard]] bool may_start(int task) const;
  [[nodiscard]] bool may_admit(int task) const;
  bool admit(int task);
  bool reserve_for_consumers(int task);
  bool promise_together(int task, int edge);
  [[nodiscard]] bool may_promise_together(int task, int edge) const;
  [[nodiscard]] bool may_hold(int edge, int count) const;
  bool reserve(int task, int edge);
  void cancel_fresh();
  void cancel(const Reservation& reservation);
  [[nodiscard]] int lane_for(int task, int edge) const;
  [[nodiscard]] bool can_reserve(int task, int edge, int lane) const;
  bool prefers_forward(int section) const;
  void start_forward(int lane, int task);
  void take_inputs(int lane, int task);
  void free_inputs(int lane, int task);
  void put_inputs_back(int lane, int task);
  void start_backward(int lane);
  [[nodiscard]] bool runs_whole(int task) const;
  void occupy(int lane, double start_ms, double end_ms, bool backward);
  void push_end(PassEnd end);
  PassEnd pop_end();

  void set_mask(std::vector<std::uint64_t>& mask, int lane, bool value);

  const PlanningGraph& graph_;
  const DispatchRules* rules_ = nullptr;
  std::vector<LaneState> lanes_;
  std::vector<DeviceState> devices_;
  std::vector<TaskState> tasks_;
  std::vector<TaskState> fresh_tasks_;  // before the first pass
  std::vector<int> rank_;               // by task, within its section
  std::vector<PrioritySet> ready_;      // by class
  std::vector<int> ready_count_;        // by section
  std::vector<SlotLedger> ledgers_;     // by edge
  std::vector<int> most_waiting_;       // by edge, from DispatchRules::depth
  std::vector<Transit> transits_;       // by edge, inputs; then by edge, gradients
  std::vector<double> next_arrival_;    // of each of them
  std::vector<int> next_gradient_;
  std::vector<double> reserved_units_;           // by need of an early task, when they became free
  std::vector<int> reserved_;                    // by need, units reserved or promised
  std::vector<double> produced_ms_;              // by need, when its first input was made
  std::vector<Reservation> fresh_reservations_;  // of the task that is being admitted
  std::vector<int> blocked_;                     // lanes whose pass has ended but for a slot, the longest first
  bool slots_freed_ = false;
  bool careful_ = false;  // nothing is taken at the end any more
  std::vector<std::vector<int>> lane_queue_;
  std::vector<int> next_in_order_;  // by section
  std::vector<int> ahead_;          // by section: outputs in production, or made and not taken
  std::vector<double> idle_ms_;     // by section: over its lanes, before their latest passes
  std::vector<char> dirty_;         // by section
  bool any_dirty_ = false;
  std::vector<int> dispatch_order_;
  // By lane, 64 lanes of one section a word.
  std::vector<int> first_word_;  // by section
  struct Bit {
    std::size_t word = 0;
    std::uint64_t bit = 0;
  };
  std::vector<Bit> bit_of_lane_;
  std::vector<std::uint64_t> idle_;
  std::vector<std::uint64_t> room_;       // below the in-flight limit
  std::vector<std::uint64_t> gradients_;  // some gradient has arrived
  std::vector<PassEnd> ends_;             // heap
  std::vector<PlannedPass>* record_ = nullptr;
  double now_ = 0;
  double cutoff_ms_ = 0;
  double makespan_ms_ = 0;
  int last_task_ = 0;
  bool hopeless_ = false;
  int passes_left_ = 0;
  mutable std::int64_t steps_ = 0;
};

}  // namespace maestro
