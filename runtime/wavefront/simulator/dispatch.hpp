// SPDX-License-Identifier: Apache-2.0
// Holds the tasks that are ready during a simulation, and picks the next task for a lane, by the orders and switches of
// DispatchRules and within the limits that Admission holds.
//
// DI-1 (most urgent first): of the ready tasks that a lane may start, a list picks the most urgent; with
// hungry_producers_first, of the class with the most urgent task, the task whose producer's lane runs out first.
// DI-2 (in order): if orders are kept, a task that may not start yet is waited for, never overtaken.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/wavefront/planning_graph.hpp"
#include "runtime/wavefront/simulator/admission.hpp"
#include "runtime/wavefront/simulator/dispatch_rules.hpp"
#include "runtime/wavefront/simulator/lanes.hpp"
#include "runtime/wavefront/simulator/priority_set.hpp"

namespace maestro {

/// Not thread-safe; no allocation after the first run.
class Dispatch {
 public:
  struct Pick {
    int task = -1;               ///< -1: none
    bool section_waits = false;  ///< true if no lane of the section could start a task either
  };

  /// All three must outlive it.
  Dispatch(const PlanningGraph& graph, const Lanes& lanes, Admission& admission);

  /// Makes tasks without inputs ready; all others wait for all of their inputs. `rules` must outlive the simulation.
  void reset(const DispatchRules& rules);
  /// Returns the sections in the order of their starts at one moment.
  [[nodiscard]] std::span<const int> section_order() const { return section_order_; }
  /// Returns the task's place in the order of its section.
  [[nodiscard]] int rank(int task) const { return rank_[task]; }

  /// Counts an input of the task that has arrived. Returns whether it was the last, so that the task is ready.
  bool add_input(int task) {
    if (--missing_inputs_[task] > 0) return false;
    add_ready(task);
    return true;
  }
  /// Returns whether a lane of the section may find a task.
  [[nodiscard]] bool has_ready(int section) const { return !listed() || ready_count_[section] > 0; }
  /// Returns whether lanes of the section put a forward pass before a waiting gradient.
  [[nodiscard]] bool prefers_forward(int section) const {
    const int consumer_lanes = graph_.sections[section].consumer_lanes;
    if (consumer_lanes == 0) return rules_->theta[section] >= forward_first;
    return ahead_[section] < rules_->theta[section] * consumer_lanes;
  }
  /// Picks the task that an idle lane starts next.
  [[nodiscard]] Pick pick(int lane) {
    const Pick picked = listed() ? pick_listed(lane) : Pick{pick_in_order(lane)};
    // Slower lanes, which come later in the usual order, would leave it, too.
    const bool left = picked.task >= 0 && rules_->await_faster && leave_to_faster(lane, picked.task);
    return left ? Pick{-1, !rules_->last_lane_first} : picked;
  }

  /// Starts the picked task on the lane.
  void start(int lane, int task);
  /// Makes a task of a list ready again that does not start after all.
  void withdraw(int task);
  /// Returns the steps of all simulations so far (Simulator::steps()).
  [[nodiscard]] std::int64_t steps() const { return steps_; }

 private:
  [[nodiscard]] bool listed() const { return rules_->discipline == DispatchRules::Discipline::list; }
  void order_sections();
  void queue_by_lane();
  void add_ready(int task);
  [[nodiscard]] Pick pick_listed(int lane);
  [[nodiscard]] int pick_from_class(int lane, int class_index, int first_rank);
  [[nodiscard]] int pick_in_order(int lane);
  [[nodiscard]] double hunger(int task) const;
  [[nodiscard]] bool leave_to_faster(int lane, int task);

  const PlanningGraph& graph_;
  const Lanes& lanes_;
  Admission& admission_;
  const DispatchRules* rules_ = nullptr;
  std::vector<int> section_order_;
  std::vector<int> rank_;            // by task, within its section
  std::vector<int> missing_inputs_;  // by task
  std::vector<PrioritySet> ready_;   // by class
  std::vector<int> ready_count_;     // by section
  std::vector<int> ahead_;           // by section: outputs in production, or made and not taken
  std::vector<std::vector<int>> lane_queue_;
  std::vector<int> next_of_lane_;     // by lane, of lane_queue_
  std::vector<int> next_of_section_;  // by section
  std::int64_t steps_ = 0;
};

}  // namespace maestro
