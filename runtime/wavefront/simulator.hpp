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

struct DispatchRules {
  enum class Discipline {
    list,           ///< the most urgent task that is ready and that the limits allow
    lane_order,     ///< each lane exactly in order; needs fixed_lane
    section_order,  ///< forward passes of a section start exactly in order, over all its lanes
  };
  /// All tasks, those of section 0 first, then of section 1, ...; within a section the most urgent first.
  std::vector<int> order;
  /// By section: forward before a waiting gradient while (outputs made and not taken + in production) is less than this
  /// share of the consumer lanes. 0: gradients first.
  std::vector<double> theta;
  /// By task, the replica it must run on. Empty: whichever takes it. Needs Binding::early.
  std::vector<int> fixed_lane;
  Discipline discipline = Discipline::list;
  /// Of waiting inputs, first the one whose gradient its producer's lane will need soonest; else by order.
  bool hungry_producers_first = false;
  /// Gradients by the section's order; else the oldest first.
  bool ordered_gradients = false;
  /// On shared devices; else the sections behind first. Sections that are not trained come last in both.
  bool upstream_first = false;
  /// A pass that waited for a slot starts as if it had known when the slot would be free.
  bool foresee_slots = true;
};

/// Not thread-safe: it owns the state of one evaluation. No allocation after the first run.
class Simulator {
 public:
  /// `graph` must outlive it.
  explicit Simulator(const PlanningGraph& graph);

  /// Milliseconds to the end of the last pass. Infinity: the rules deadlock, or every such schedule is longer than
  /// `cutoff_ms`.
  double run(const DispatchRules& rules, double cutoff_ms);
  /// The schedule of `rules`, which run() has found to end. Passes by start, then end.
  Schedule schedule(const DispatchRules& rules);

 private:
  struct LaneState {
    int task = -1;  // that runs
    bool backward = false;
    int in_flight = 0;
    int first_gradient = -1, last_gradient = -1;  // list through next_gradient_
    int first_bound = -1;                         // ready tasks of this lane, list through next_bound_
    double gradient_work_ms = 0;                  // of the gradients in the list
    double bound_work_ms = 0;                     // of tasks with this lane that have not started
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
    int lane = -1;
    double ready_ms = 0;     // when the last input arrived
    double produced_ms = 0;  // when its input with limited slots was made
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
    [[nodiscard]] bool empty() const { return next == queue.size(); }
  };
  enum class Waiting { no, lane, section };  // why a lane found no task: its own state, or the section's

  void reset(const DispatchRules& rules);
  void queue_by_lane();
  double next_event() const;
  void process_until_now();
  void finish_pass(int lane);
  void finish_forward(int task);
  void finish_backward(int task);
  void deliver_input(int task);
  void deliver_gradient(int task);

  void dispatch_all();
  void dispatch(int section);
  bool start_next(int lane, Waiting& waiting);
  int pick_forward(int lane, Waiting& waiting);
  int pick_unbound(int lane, int rank_limit, Waiting& waiting);
  int pick_from_pool(int lane, int class_index, int first_rank) const;
  int pick_in_order(int lane);
  int pick_bound(int lane) const;
  [[nodiscard]] double hunger(int task) const;
  [[nodiscard]] bool may_admit(int task) const;
  bool admit(int task);
  bool bind(int task);
  [[nodiscard]] bool can_bind(int task, int lane) const;
  [[nodiscard]] bool has_bindable_lane(int task) const;
  void unbind(int task);
  bool prefers_forward(int section) const;
  void start_forward(int lane, int task);
  void start_backward(int lane);
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
  std::vector<RankSet> ready_;          // by class
  std::vector<int> ready_count_;        // by section
  std::vector<SlotLedger> ledgers_;     // by edge
  std::vector<Transit> inputs_in_transit_;
  std::vector<Transit> gradients_in_transit_;
  std::vector<int> next_gradient_;
  std::vector<int> next_bound_;
  std::vector<std::vector<int>> lane_queue_;
  std::vector<int> next_in_order_;  // by section
  std::vector<int> ahead_;          // by section: outputs in production, or made and not taken
  std::vector<double> idle_ms_;     // by section: over its lanes, before their latest passes
  std::vector<char> dirty_;         // by section
  bool any_dirty_ = false;
  std::vector<int> dispatch_order_;
  // By lane, 64 lanes of one section a word.
  std::vector<int> first_word_;  // by section
  std::vector<std::uint64_t> idle_;
  std::vector<std::uint64_t> room_;       // below the in-flight limit
  std::vector<std::uint64_t> gradients_;  // some gradient has arrived
  std::vector<std::uint64_t> bound_;      // some task that is ready must run here
  std::vector<PassEnd> ends_;             // heap
  std::vector<PlannedPass>* record_ = nullptr;
  double now_ = 0;
  double cutoff_ms_ = 0;
  double makespan_ms_ = 0;
  bool hopeless_ = false;
  int passes_left_ = 0;
};

}  // namespace maestro
