// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/simulator/dispatch.hpp"

#include <algorithm>
#include <cmath>

namespace maestro {

namespace {

constexpr int admission_tries = 4;  // tasks tried without finding a lane for their consumers
constexpr int looked_at = 24;       // tasks of a class that a lane considers

}  // namespace

Dispatch::Dispatch(const PlanningGraph& graph, const Lanes& lanes, Admission& admission)
    : graph_(graph),
      lanes_(lanes),
      admission_(admission),
      rank_(graph.tasks.size()),
      missing_inputs_(graph.tasks.size()),
      ready_count_(graph.sections.size()),
      ahead_(graph.sections.size()),
      lane_queue_(graph.lanes.size()),
      next_of_lane_(graph.lanes.size()),
      next_of_section_(graph.sections.size()) {
  for (const PlanningGraph::Class& kind : graph.classes) ready_.emplace_back(graph.sections[kind.section].tasks);
}

void Dispatch::reset(const DispatchRules& rules) {
  rules_ = &rules;
  order_sections();
  for (const PlanningGraph::Section& section : graph_.sections) {
    for (int n = 0; n < section.tasks; ++n) rank_[rules.order[section.first_task + n]] = n;
  }
  for (PrioritySet& set : ready_) set.clear();
  ready_count_.assign(ready_count_.size(), 0);
  ahead_.assign(ahead_.size(), 0);
  next_of_lane_.assign(next_of_lane_.size(), 0);
  next_of_section_.assign(next_of_section_.size(), 0);
  if (!rules.fixed_lane.empty()) queue_by_lane();
  for (std::size_t task = 0; task < missing_inputs_.size(); ++task) {
    missing_inputs_[task] = static_cast<int>(graph_.inputs_of(task).size());
    if (missing_inputs_[task] == 0) add_ready(static_cast<int>(task));
  }
}

void Dispatch::order_sections() {
  using DeviceOrder = DispatchRules::DeviceOrder;
  const int sections = static_cast<int>(graph_.sections.size());
  section_order_.clear();
  for (const bool trained : {true, false}) {
    for (int n = 0; n < sections; ++n) {
      const int section = rules_->device_order == DeviceOrder::trained_behind ? sections - 1 - n : n;
      const bool first = graph_.sections[section].has_backward || rules_->device_order == DeviceOrder::ahead;
      if (first == trained) section_order_.push_back(section);
    }
  }
}

void Dispatch::queue_by_lane() {
  for (auto& queue : lane_queue_) queue.clear();
  for (const int task : rules_->order) lane_queue_[admission_.lane_of(task)].push_back(task);
}

void Dispatch::add_ready(int task) {
  if (!listed()) return;
  ready_[graph_.tasks[task].task_class].insert(rank_[task]);
  ++ready_count_[graph_.tasks[task].section];
}

void Dispatch::start(int lane, int task) {
  const PlanningGraph::Task& given = graph_.tasks[task];
  if (listed()) {
    ready_[given.task_class].erase(rank_[task]);
    --ready_count_[given.section];
  }
  ++next_of_lane_[lane];
  ++next_of_section_[given.section];
  for (const PlanningGraph::Link& link : graph_.inputs_of(task)) --ahead_[graph_.tasks[link.task].section];
  ahead_[given.section] += given.out_end - given.out_begin;
}

void Dispatch::withdraw(int task) {
  const PlanningGraph::Task& given = graph_.tasks[task];
  for (const PlanningGraph::Link& link : graph_.inputs_of(task)) ++ahead_[graph_.tasks[link.task].section];
  ahead_[given.section] -= given.out_end - given.out_begin;
  add_ready(task);
}

int Dispatch::pick_in_order(int lane) {
  int task = -1;
  if (rules_->discipline == DispatchRules::Discipline::lane_order) {
    const std::vector<int>& queue = lane_queue_[lane];
    if (next_of_lane_[lane] == static_cast<int>(queue.size())) return -1;
    task = queue[next_of_lane_[lane]];
  } else {
    const int section = graph_.lanes[lane].section;
    const PlanningGraph::Section& given = graph_.sections[section];
    if (next_of_section_[section] == given.tasks) return -1;
    task = rules_->order[given.first_task + next_of_section_[section]];
  }
  const int bound = admission_.lane_of(task);
  if (missing_inputs_[task] > 0 || (bound >= 0 && bound != lane) || !admission_.may_take(lane, task)) return -1;
  return admission_.may_start(task) ? task : -1;
}

/// Picks the most urgent ready task that this lane may start.
Dispatch::Pick Dispatch::pick_listed(int lane) {
  const PlanningGraph::Section& section = graph_.sections[graph_.lanes[lane].section];
  const int* order = rules_->order.data() + section.first_task;
  Pick best{-1, true};
  int best_rank = unlimited;
  for (int index = section.first_class; index < section.first_class + section.classes; ++index) {
    const PrioritySet& set = ready_[index];
    const PlanningGraph::Class& kind = graph_.classes[index];
    if (set.empty()) continue;
    ++steps_;
    int rank = set.next(0);
    for (int tries = 1; !admission_.may_start(order[rank]); ++tries) {
      // Tasks of one class make the same promises; only the slots that early consumers need differ.
      rank = (kind.binds || kind.joins) && tries < admission_tries ? set.next(rank + 1) : -1;
      if (rank < 0) break;
    }
    if (rank < 0) continue;
    best.section_waits = false;
    if (rank >= best_rank) continue;
    int task = order[rank];
    if (kind.limited || (kind.fed && rules_->hungry_producers_first)) {
      task = pick_from_class(lane, index, rank);
      if (task < 0) continue;
      // A class has the place of its most urgent task, whichever of its tasks is taken.
      if (!rules_->hungry_producers_first) rank = rank_[task];
      if (rank >= best_rank) continue;
    }
    best.task = task;
    best_rank = rank;
  }
  return best;
}

int Dispatch::pick_from_class(int lane, int class_index, int first_rank) {
  const PlanningGraph::Section& section = graph_.sections[graph_.lanes[lane].section];
  const int* order = rules_->order.data() + section.first_task;
  const PlanningGraph::Class& kind = graph_.classes[class_index];
  const bool hungry = rules_->hungry_producers_first;
  int best = -1;
  double least = EventQueue::never;
  int seen = 0;
  for (int rank = first_rank; rank >= 0 && seen < looked_at; rank = ready_[class_index].next(rank + 1), ++seen) {
    const int task = order[rank];
    double wait = 0;
    ++steps_;
    if (hungry) {
      wait = hunger(task);
      if (best >= 0 && wait >= least) continue;
    }
    if (kind.limited && !admission_.may_take(lane, task)) continue;
    if ((kind.binds || kind.joins) && !admission_.may_start(task)) continue;
    best = task;
    least = wait;
    if (!hungry) break;
  }
  return best;
}

/// Returns the milliseconds until the lane that made the task's input has nothing left to run, as far as is known.
double Dispatch::hunger(int task) const {
  double least = EventQueue::never;
  for (const PlanningGraph::Link& link : graph_.inputs_of(task)) {
    const int lane = admission_.lane_of(link.task);
    const PlanningGraph::Section& section = graph_.section_of(link.task);
    if (!section.has_backward || section.max_in_flight == unlimited) continue;
    const double room_ms = (section.max_in_flight - lanes_.in_flight(lane)) * section.mean_forward_ms;
    least = std::min(least, lanes_.backlog_ms(lane) + room_ms);
  }
  return least;
}

/// Returns whether some of the section's faster lanes run passes and these lanes can do all tasks that have not started
/// before this lane would end the task.
bool Dispatch::leave_to_faster(int lane, int task) {
  const PlanningGraph::Section& section = graph_.section_of(task);
  const int not_started = section.tasks - next_of_section_[graph_.tasks[task].section];
  const double mean_ms = section.work_ms / section.tasks;
  const double own_ms = graph_.forward_ms(lane, task) + graph_.backward_ms(lane, task);
  if (graph_.lanes[lane].faster * own_ms < not_started * mean_ms) return false;
  double tasks = 0;
  bool busy = false;  // then a pass ends, and the lane may decide anew
  for (int other = section.first_lane; graph_.lanes[other].speed > graph_.lanes[lane].speed; ++other) {
    ++steps_;
    const double backlog_ms = lanes_.backlog_ms(other);
    busy |= backlog_ms > 0;
    tasks += std::floor(std::max(own_ms - backlog_ms, 0.0) * graph_.lanes[other].speed / mean_ms);
  }
  return busy && tasks >= not_started;
}

}  // namespace maestro
