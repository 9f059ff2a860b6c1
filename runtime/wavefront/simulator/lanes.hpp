// SPDX-License-Identifier: Apache-2.0
// The state of all lanes during a simulation: each lane's pass, its tasks in flight, and the gradients that wait for
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/wavefront/planning_graph.hpp"
#include "runtime/wavefront/simulator/event_queue.hpp"
#include "runtime/wavefront/simulator/lane_masks.hpp"

namespace maestro {

/// Not thread-safe; no allocation after construction.
class Lanes {
 public:
  struct Pass {
    int task = -1;
    bool backward = false;
    bool whole = false;  ///< forward and backward without a gap
    double start_ms = 0;
    double end_ms = 0;
  };

  /// `graph` and `events`, whose clock it reads, must outlive it.
  Lanes(const PlanningGraph& graph, const EventQueue& events)
      : graph_(graph),
        events_(events),
        states_(graph.lanes.size()),
        next_gradient_(graph.tasks.size()),
        masks_(graph.sections) {}

  void reset() {
    states_.assign(states_.size(), State{});
    masks_.reset();
  }

  /// Returns the lane's latest pass.
  [[nodiscard]] const Pass& pass(int lane) const { return states_[lane].pass; }
  void begin_pass(int lane, const Pass& pass) {
    states_[lane].pass = pass;
    masks_.set_idle(lane, false);
  }
  void end_pass(int lane) { masks_.set_idle(lane, true); }
  /// Moves the lane's pass, which waited for a slot at its end, to a later time.
  void delay_pass(int lane, double by_ms, double end_ms) {
    states_[lane].pass.start_ms += by_ms;
    states_[lane].pass.end_ms = end_ms;
  }

  [[nodiscard]] int in_flight(int lane) const { return states_[lane].in_flight; }
  void enter_flight(int lane) {
    if (++states_[lane].in_flight >= section_of(lane).max_in_flight) masks_.set_room(lane, false);
  }
  void leave_flight(int lane) {
    --states_[lane].in_flight;
    masks_.set_room(lane, true);
  }
  [[nodiscard]] bool has_room(int lane) const { return states_[lane].in_flight < section_of(lane).max_in_flight; }

  [[nodiscard]] bool has_gradient(int lane) const { return states_[lane].first_gradient >= 0; }
  void add_gradient(int lane, int task) {
    State& state = states_[lane];
    next_gradient_[task] = -1;
    if (state.first_gradient < 0) {
      state.first_gradient = task;
    } else {
      next_gradient_[state.last_gradient] = task;
    }
    state.last_gradient = task;
    state.gradient_work_ms += graph_.backward_ms(lane, task);
    masks_.set_gradient(lane, true);
  }
  /// Takes the waiting gradient with the least `rank(task)`, of equals the oldest, and returns its task. Needs
  /// has_gradient().
  template <class Rank>
  int take_gradient(int lane, Rank rank) {
    State& state = states_[lane];
    int before = -1;
    int task = state.first_gradient;
    for (int at = task; next_gradient_[at] >= 0; at = next_gradient_[at]) {
      if (rank(next_gradient_[at]) >= rank(task)) continue;
      before = at;
      task = next_gradient_[at];
    }
    (before < 0 ? state.first_gradient : next_gradient_[before]) = next_gradient_[task];
    if (state.last_gradient == task) state.last_gradient = before;
    state.gradient_work_ms -= graph_.backward_ms(lane, task);
    masks_.set_gradient(lane, state.first_gradient >= 0);
    return task;
  }
  /// Takes the oldest waiting gradient and returns its task. Needs has_gradient().
  int take_gradient(int lane) {
    State& state = states_[lane];
    const int task = state.first_gradient;
    state.first_gradient = next_gradient_[task];
    state.gradient_work_ms -= graph_.backward_ms(lane, task);
    masks_.set_gradient(lane, state.first_gradient >= 0);
    return task;
  }

  /// Returns the milliseconds that the lane's pass and its waiting gradients still take.
  [[nodiscard]] double backlog_ms(int lane) const {
    const State& state = states_[lane];
    return std::max(state.pass.end_ms - events_.now_ms(), 0.0) + state.gradient_work_ms;
  }
  /// Returns the sum over all lanes of the time from `due_ms` to the end of their latest passes, if they end later.
  [[nodiscard]] double late_ms(double due_ms) const {
    double sum_ms = 0;
    for (const State& state : states_) sum_ms += std::max(state.pass.end_ms - due_ms, 0.0);
    return sum_ms;
  }
  [[nodiscard]] const LaneMasks& masks() const { return masks_; }

 private:
  struct State {
    Pass pass;
    int in_flight = 0;
    int first_gradient = -1, last_gradient = -1;  // list through next_gradient_
    double gradient_work_ms = 0;                  // work of the gradients in the list
  };

  [[nodiscard]] const PlanningGraph::Section& section_of(int lane) const {
    return graph_.sections[graph_.lanes[lane].section];
  }

  const PlanningGraph& graph_;
  const EventQueue& events_;
  std::vector<State> states_;
  std::vector<int> next_gradient_;  // by task
  LaneMasks masks_;
};

}  // namespace maestro
