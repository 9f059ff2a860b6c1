// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/simulator/simulator.hpp"

#include <algorithm>
#include <bit>
#include <tuple>

namespace maestro {

namespace {

constexpr double never = EventQueue::never;

}  // namespace

Simulator::Simulator(const PlanningGraph& graph)
    : graph_(graph),
      events_(graph.lanes.size(), 2 * graph.edges.size()),
      lanes_(graph, events_),
      admission_(graph, lanes_),
      dispatch_(graph, lanes_, admission_),
      devices_(graph.device_sets.size()),
      idle_ms_(graph.sections.size()),
      turns_(graph.sections.size()),
      marked_(graph.sections.size()) {
  for (const PlanningGraph::Task& task : graph.tasks) fresh_tasks_.push_back({task.backward_needs, 0});
}

double Simulator::run(const DispatchRules& rules, double cutoff_ms) {
  steps_ += 20 + static_cast<std::int64_t>(tasks_.size() / 16);
  cutoff_ms_ = cutoff_ms * (1 + 1e-12);  // sums are rounded
  reset(rules);
  while (true) {
    dispatch_all();
    if (hopeless_) return never;
    const double next_ms = events_.next_ms();
    if (next_ms == never && withdraw_all()) continue;
    if (next_ms == never) break;
    if (next_ms > cutoff_ms_) return never;
    events_.advance_to(next_ms);
    process_events();
  }
  return passes_left_ == 0 ? makespan_ms_ : never;
}

Schedule Simulator::schedule(const DispatchRules& rules) {
  Schedule schedule;
  schedule.passes.reserve(graph_.passes);
  record_ = &schedule.passes;
  schedule.makespan_ms = run(rules, never);
  record_ = nullptr;
  std::stable_sort(schedule.passes.begin(), schedule.passes.end(), [](const PlannedPass& a, const PlannedPass& b) {
    return std::tie(a.start_ms, a.end_ms) < std::tie(b.start_ms, b.end_ms);
  });
  return schedule;
}

void Simulator::reset(const DispatchRules& rules) {
  rules_ = &rules;
  events_.reset();
  lanes_.reset();
  admission_.reset(rules);
  dispatch_.reset(rules);
  devices_.assign(devices_.size(), DevicesState{});
  tasks_ = fresh_tasks_;
  blocked_.clear();
  idle_ms_.assign(idle_ms_.size(), 0);
  turns_.assign(turns_.size(), 0);
  marked_.assign(marked_.size(), 1);
  any_marked_ = 1;
  makespan_ms_ = 0;
  passes_left_ = graph_.passes;
  hopeless_ = false;
}

void Simulator::process_events() {
  for (int lane = events_.take_end(); lane >= 0; lane = events_.take_end()) finish_pass(lane);
  const std::size_t edges = graph_.edges.size();
  for (std::size_t channel = 0; channel < 2 * edges; ++channel) {
    for (int task = events_.take_arrival(channel); task >= 0; task = events_.take_arrival(channel)) {
      channel < edges ? deliver_input(task) : deliver_gradient(task);
    }
  }
}

void Simulator::deliver_input(int task) {
  if (!dispatch_.add_input(task)) return;
  tasks_[task].ready_ms = events_.now_ms();
  mark(graph_.tasks[task].section);
}

void Simulator::deliver_gradient(int task) {
  if (--tasks_[task].backward_needs > 0) return;
  lanes_.add_gradient(admission_.lane_of(task), task);
  mark(graph_.tasks[task].section);
}

void Simulator::dispatch_all() {
  while (any_marked_ != 0 || (admission_.slots_freed() && !blocked_.empty())) {
    if (!blocked_.empty()) settle_blocked();
    any_marked_ = 0;
    for (const int section : dispatch_.section_order()) {
      if (marked_[section] == 0) continue;
      marked_[section] = 0;
      dispatch(section);
    }
  }
}

void Simulator::dispatch(int section) {
  const PlanningGraph::Section& given = graph_.sections[section];
  const int words = (given.lanes + 63) / 64;
  const bool equal = graph_.lanes[given.first_lane].speed == graph_.lanes[given.first_lane + given.lanes - 1].speed;
  const int turn = equal && rules_->lanes_in_turn ? turns_[section] : 0;
  const std::uint64_t behind = ~std::uint64_t{0} << (turn % 64);
  bool section_waits = false;
  for (int n = 0; n <= words; ++n) {
    const int word = (turn / 64 + n) % words;
    std::uint64_t tried = n == 0 ? ~behind : n == words ? behind : 0;
    while (true) {
      const bool forward = !section_waits && dispatch_.has_ready(section);
      const std::uint64_t candidates = lanes_.masks().candidates(section, word, forward) & ~tried;
      if (candidates == 0) break;
      const int bit = rules_->last_lane_first ? 63 - std::countl_zero(candidates) : std::countr_zero(candidates);
      tried |= std::uint64_t{1} << bit;
      const int lane = given.first_lane + word * 64 + bit;
      if (devices_[graph_.lanes[lane].devices].busy != 0) continue;
      start_next(lane, section_waits);
    }
  }
}

/// Starts a pass on an idle lane, if the lane has any; otherwise sets `section_waits` if no other lane has any.
void Simulator::start_next(int lane, bool& section_waits) {
  ++steps_;
  const bool has_gradient = lanes_.has_gradient(lane);
  if (lanes_.has_room(lane) && (!has_gradient || dispatch_.prefers_forward(graph_.lanes[lane].section))) {
    const Dispatch::Pick pick = dispatch_.pick(lane);
    if (pick.task >= 0 && (admission_.admits_at_end(pick.task) || admission_.admit(pick.task))) {
      start_forward(lane, pick.task);
      return;
    }
    if (!has_gradient) section_waits |= pick.section_waits;
  }
  if (has_gradient) start_backward(lane);
}

void Simulator::start_forward(int lane, int task) {
  const PlanningGraph::Task& given = graph_.tasks[task];
  const double now_ms = events_.now_ms();
  admission_.take_inputs(lane, task, now_ms);
  dispatch_.start(lane, task);
  turns_[given.section] = (lane - graph_.sections[given.section].first_lane + 1) % graph_.sections[given.section].lanes;
  for (const PlanningGraph::Link& link : graph_.inputs_of(task)) mark(graph_.tasks[link.task].section);
  if (graph_.sections[given.section].has_backward) lanes_.enter_flight(lane);
  if (rules_->discipline == DispatchRules::Discipline::section_order) mark(given.section);

  double start_ms = now_ms;
  if (rules_->foresee_slots) {
    const double free_ms = devices_[graph_.lanes[lane].devices].idle_since_ms;
    start_ms = std::max({free_ms, tasks_[task].ready_ms, now_ms - graph_.forward_ms(lane, task)});
  }
  const bool whole = runs_whole(task);
  const double length_ms = graph_.forward_ms(lane, task) + (whole ? graph_.backward_ms(lane, task) : 0);
  begin_pass(lane, {task, whole, whole, start_ms, std::max(start_ms + length_ms, now_ms)});
}

/// Returns whether both passes run without a gap. A task that feeds no section has its gradient at once, and other
/// sections wait for the task's gradient: both passes are a single event.
bool Simulator::runs_whole(int task) const {
  return rules_->whole_tasks && rules_->discipline == DispatchRules::Discipline::list &&
         graph_.tasks[task].backward_needs == 1;
}

void Simulator::start_backward(int lane) {
  const int task = rules_->ordered_gradients ? lanes_.take_gradient(lane, [&](int n) { return dispatch_.rank(n); })
                                             : lanes_.take_gradient(lane);
  const double now_ms = events_.now_ms();
  begin_pass(lane, {task, true, false, now_ms, now_ms + graph_.backward_ms(lane, task)});
}

void Simulator::begin_pass(int lane, const Lanes::Pass& pass) {
  const PlanningGraph::Lane& given = graph_.lanes[lane];
  const PlanningGraph::Section& section = graph_.sections[given.section];
  const DevicesState& devices = count_pass(lane, 1);
  if (!section.shared) {
    double& idle_ms = idle_ms_[given.section];
    idle_ms += (pass.start_ms - devices.idle_since_ms) * given.speed;
    if (section.work_ms + idle_ms > cutoff_ms_ * section.rate) hopeless_ = true;
  }
  lanes_.begin_pass(lane, pass);
  events_.add_end(pass.end_ms, lane);
}

void Simulator::finish_pass(int lane) {
  const Lanes::Pass& pass = lanes_.pass(lane);
  const int task = pass.task;
  steps_ += 3;
  if (pass.backward) {
    lanes_.leave_flight(lane);
    leave(lane);
    finish_backward(task);
  } else if (admission_.admitted(task)) {
    leave(lane);
    finish_forward(task);
  } else if (admission_.admit(task)) {
    finish_at_end(lane);
  } else {
    blocked_.push_back(lane);
    any_marked_ = 1;
  }
}

/// Ends a pass that took the slots of its outputs at its end, which decides only now when it started.
void Simulator::finish_at_end(int lane) {
  const int task = lanes_.pass(lane).task;
  leave(lane);
  admission_.free_inputs(lane, task, lanes_.pass(lane).start_ms);
  for (const PlanningGraph::Need& need : graph_.needs_of(task)) mark(graph_.edges[need.edge].from);
  finish_forward(task);
}

void Simulator::leave(int lane) {
  const PlanningGraph::Lane& given = graph_.lanes[lane];
  const double now_ms = events_.now_ms();
  if (const double late_ms = now_ms - lanes_.pass(lane).end_ms; late_ms > 0) {
    // The pass was blocked at its end; it runs as late as the slots are free.
    idle_ms_[given.section] += late_ms * given.speed;
    lanes_.delay_pass(lane, late_ms, now_ms);
  }
  if (record_ != nullptr) record(lane);
  passes_left_ -= lanes_.pass(lane).whole ? 2 : 1;
  lanes_.end_pass(lane);
  count_pass(lane, -1).idle_since_ms = now_ms;
  for (const int other : graph_.device_sets[given.devices].overlapping) devices_[other].idle_since_ms = now_ms;
  mark_devices(lane);
  makespan_ms_ = now_ms;
  last_task_ = lanes_.pass(lane).task;
}

void Simulator::record(int lane) {
  const Lanes::Pass& pass = lanes_.pass(lane);
  const auto task = static_cast<std::size_t>(pass.task);
  const int replica = graph_.replica_of(lane);
  const double middle = pass.whole ? pass.start_ms + graph_.forward_ms(lane, pass.task) : pass.start_ms;
  if (pass.whole) record_->push_back({task, false, replica, pass.start_ms, middle, 0, 0});
  record_->push_back({task, pass.backward, replica, middle, pass.end_ms, 0, 0});
}

void Simulator::finish_forward(int task) {
  const double now_ms = events_.now_ms();
  for (const PlanningGraph::Link& link : graph_.outputs_of(task)) {
    const PlanningGraph::Edge& edge = graph_.edges[link.edge];
    if (edge.slots != unlimited) admission_.input_made(link, now_ms);
    if (edge.transfer_ms > 0) {
      events_.send(link.edge, now_ms + edge.transfer_ms, link.task);
    } else {
      deliver_input(link.task);
    }
  }
  if (graph_.section_of(task).has_backward) {
    deliver_gradient(task);
    return;
  }
  for (const PlanningGraph::Link& link : graph_.inputs_of(task)) {
    if (graph_.section_of(link.task).has_backward) deliver_gradient(link.task);
  }
}

void Simulator::finish_backward(int task) {
  for (const PlanningGraph::Link& link : graph_.inputs_of(task)) {
    if (!graph_.section_of(link.task).has_backward) continue;
    const double transfer_ms = graph_.edges[link.edge].transfer_ms;
    if (transfer_ms > 0) {
      events_.send(graph_.edges.size() + link.edge, events_.now_ms() + transfer_ms, link.task);
    } else {
      deliver_gradient(link.task);
    }
  }
}

/// Ends the passes whose slots are free by now, and takes back passes whose lanes have a gradient to work on instead.
void Simulator::settle_blocked() {
  admission_.take_slots_freed();
  std::size_t kept = 0;
  for (std::size_t n = 0; n < blocked_.size(); ++n) {
    const int lane = blocked_[n];
    if (admission_.admit(lanes_.pass(lane).task)) {
      finish_at_end(lane);
    } else if (lanes_.has_gradient(lane)) {
      withdraw(lane);
      start_backward(lane);
    } else {
      blocked_[kept++] = lane;
    }
  }
  blocked_.resize(kept);
}

/// Takes a blocked pass back as if it had not started: so far it has changed nothing but its lane.
void Simulator::withdraw(int lane) {
  const Lanes::Pass& pass = lanes_.pass(lane);
  const PlanningGraph::Lane& given = graph_.lanes[lane];
  const PlanningGraph::Section& section = graph_.sections[given.section];
  const DevicesState& devices = count_pass(lane, -1);
  if (!section.shared) idle_ms_[given.section] -= (pass.start_ms - devices.idle_since_ms) * given.speed;
  lanes_.end_pass(lane);
  if (section.has_backward) lanes_.leave_flight(lane);
  admission_.put_inputs_back(lane, pass.task);
  dispatch_.withdraw(pass.task);
  mark_devices(lane);
}

/// Resolves a deadlock between passes that wait at their ends for each other's slots; from now on slots are taken at
/// the start.
bool Simulator::withdraw_all() {
  if (blocked_.empty()) return false;
  admission_.stop_foreseeing();
  for (const int lane : blocked_) withdraw(lane);
  blocked_.clear();
  return true;
}

}  // namespace maestro
