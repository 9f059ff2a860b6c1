// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/simulator.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

namespace maestro {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr int admission_tries = 4;  // tasks that find no lane for what they feed before a lane gives up

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

Simulator::Simulator(const PlanningGraph& graph)
    : graph_(graph),
      lanes_(graph.lanes.size()),
      devices_(graph.device_sections.size()),
      fresh_tasks_(graph.tasks.size()),
      rank_(graph.tasks.size()),
      ready_count_(graph.sections.size()),
      ledgers_(graph.edges.size()),
      most_waiting_(graph.edges.size()),
      transits_(2 * graph.edges.size()),
      next_arrival_(transits_.size()),
      next_gradient_(graph.tasks.size()),
      reserved_units_(static_cast<std::size_t>(graph.reserved_units)),
      reserved_(graph.needs.size()),
      produced_ms_(graph.needs.size()),
      lane_queue_(graph.lanes.size()),
      next_in_order_(graph.sections.size()),
      ahead_(graph.sections.size()),
      idle_ms_(graph.sections.size()),
      dirty_(graph.sections.size()) {
  for (std::size_t index = 0; index < graph.tasks.size(); ++index) {
    fresh_tasks_[index].forward_needs = graph.tasks[index].in_end - graph.tasks[index].in_begin;
    fresh_tasks_[index].backward_needs = graph.tasks[index].backward_needs;
  }
  for (const PlanningGraph::Class& kind : graph.classes) {
    const auto home = std::find_if(graph.tasks.begin(), graph.tasks.end(), [&](const PlanningGraph::Task& task) {
      return &graph.classes[at(task.task_class)] == &kind;
    });
    ready_.emplace_back(at(graph.sections[at(home->section)].tasks));
  }
  int words = 0;
  for (const PlanningGraph::Section& section : graph.sections) {
    first_word_.push_back(words);
    for (int replica = 0; replica < section.lanes; ++replica) {
      bit_of_lane_.push_back({at(words + replica / 64), std::uint64_t{1} << (replica % 64)});
    }
    words += (section.lanes + 63) / 64;
  }
  for (auto* mask : {&idle_, &room_, &gradients_}) mask->resize(at(words));
  ends_.reserve(graph.lanes.size());
}

double Simulator::run(const DispatchRules& rules, double cutoff_ms) {
  steps_ += 20 + static_cast<std::int64_t>(tasks_.size() / 16);
  cutoff_ms_ = cutoff_ms * (1 + 1e-12);  // sums are rounded
  reset(rules);
  while (true) {
    dispatch_all();
    if (hopeless_) return never;
    const double next = next_event();
    if (next == never && withdraw_all()) continue;
    if (next == never) break;
    if (next > cutoff_ms_) return never;
    now_ = next;
    process_until_now();
  }
  return passes_left_ == 0 ? makespan_ms_ : never;
}

double Simulator::late_ms(double due_ms) const {
  double sum_ms = 0;
  for (const LaneState& lane : lanes_) sum_ms += std::max(lane.busy_until - due_ms, 0.0);
  return sum_ms;
}

Schedule Simulator::schedule(const DispatchRules& rules) {
  Schedule schedule;
  schedule.passes.reserve(at(graph_.passes));
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
  lanes_.assign(lanes_.size(), LaneState{});
  devices_.assign(devices_.size(), DeviceState{});
  tasks_ = fresh_tasks_;
  ready_count_.assign(ready_count_.size(), 0);
  next_in_order_.assign(next_in_order_.size(), 0);
  ahead_.assign(ahead_.size(), 0);
  idle_ms_.assign(idle_ms_.size(), 0);
  for (PrioritySet& set : ready_) set.clear();
  for (std::size_t edge = 0; edge < ledgers_.size(); ++edge) {
    const PlanningGraph::Edge& given = graph_.edges[edge];
    const double depth =
        rules.depth.empty() ? never : rules.depth[edge] * graph_.sections[at(given.to)].lanes + given.slots - 1;
    most_waiting_[edge] = depth < unlimited ? static_cast<int>(std::ceil(depth)) : unlimited;
    if (given.slots != unlimited) ledgers_[edge].reset(graph_.sections[at(given.to)].lanes, given.slots);
  }
  for (Transit& transit : transits_) {
    transit.queue.clear();
    transit.next = 0;
  }
  next_arrival_.assign(next_arrival_.size(), never);
  for (auto* mask : {&idle_, &room_, &gradients_}) mask->assign(mask->size(), 0);
  for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane) {
    set_mask(idle_, lane, true);
    set_mask(room_, lane, true);
  }
  ends_.clear();
  blocked_.clear();
  reserved_.assign(reserved_.size(), 0);
  produced_ms_.assign(produced_ms_.size(), never);
  slots_freed_ = careful_ = false;
  now_ = makespan_ms_ = 0;
  hopeless_ = false;
  passes_left_ = graph_.passes;

  const int sections = static_cast<int>(graph_.sections.size());
  dispatch_order_.clear();
  using DeviceOrder = DispatchRules::DeviceOrder;
  for (const bool trained : {true, false}) {
    for (int n = 0; n < sections; ++n) {
      const int section = rules.device_order == DeviceOrder::trained_behind ? sections - 1 - n : n;
      const bool first = graph_.sections[at(section)].has_backward || rules.device_order == DeviceOrder::ahead;
      if (first == trained) dispatch_order_.push_back(section);
    }
  }
  for (const PlanningGraph::Section& section : graph_.sections) {
    for (int n = 0; n < section.tasks; ++n) rank_[at(rules.order[at(section.first_task + n)])] = n;
  }
  if (!rules.fixed_lane.empty()) queue_by_lane();
  for (int task = 0; task < static_cast<int>(tasks_.size()); ++task) {
    if (tasks_[at(task)].forward_needs == 0) {
      ++tasks_[at(task)].forward_needs;
      deliver_input(task);
    }
  }
  dirty_.assign(dirty_.size(), 1);
  any_dirty_ = true;
}

void Simulator::queue_by_lane() {
  for (auto& queue : lane_queue_) queue.clear();
  for (const int task : rules_->order) {
    const PlanningGraph::Section& section = graph_.sections[at(graph_.tasks[at(task)].section)];
    const int lane = section.first_lane + rules_->fixed_lane[at(task)];
    lane_queue_[at(lane)].push_back(task);
    tasks_[at(task)].lane = lane;
  }
}

double Simulator::next_event() const {
  double next = ends_.empty() ? never : ends_.front().at;
  for (const double arrival : next_arrival_) next = std::min(next, arrival);
  return next;
}

void Simulator::process_until_now() {
  while (!ends_.empty() && ends_.front().at <= now_) finish_pass(pop_end().lane);
  for (std::size_t number = 0; number < transits_.size(); ++number) {
    while (next_arrival_[number] <= now_) {
      Transit& transit = transits_[number];
      const int task = transit.queue[transit.next++].task;
      next_arrival_[number] = transit.next < transit.queue.size() ? transit.queue[transit.next].at : never;
      if (number < graph_.edges.size()) {
        deliver_input(task);
      } else {
        deliver_gradient(task);
      }
    }
  }
}

void Simulator::send(std::size_t transit, double arrival_ms, int task) {
  transits_[transit].queue.push_back({arrival_ms, task});
  next_arrival_[transit] = std::min(next_arrival_[transit], arrival_ms);
}

void Simulator::finish_pass(int lane) {
  LaneState& state = lanes_[at(lane)];
  const int task = state.task;
  steps_ += 3;
  if (state.backward) {
    --state.in_flight;
    set_mask(room_, lane, true);
    leave(lane);
    finish_backward(task);
    return;
  }
  if (tasks_[at(task)].admitted) {
    leave(lane);
    finish_forward(task);
  } else if (admit(task)) {
    finish_at_end(lane);
  } else {
    blocked_.push_back(lane);
    any_dirty_ = true;
  }
}

/// A pass that took the slots of its outputs at its end: only now it is known when it started.
void Simulator::finish_at_end(int lane) {
  const int task = lanes_[at(lane)].task;
  leave(lane);
  free_inputs(lane, task);
  finish_forward(task);
}

void Simulator::leave(int lane) {
  LaneState& state = lanes_[at(lane)];
  const PlanningGraph::Lane& given = graph_.lanes[at(lane)];
  DeviceState& device = devices_[at(given.device)];
  if (now_ > state.busy_until) {
    // It was blocked at its end; it runs as late as the slots are free.
    idle_ms_[at(given.section)] += now_ - state.busy_until;
    state.busy_from += now_ - state.busy_until;
    state.busy_until = now_;
  }
  if (record_) {
    const int replica = lane - graph_.sections[at(given.section)].first_lane;
    const double middle = state.whole ? state.busy_from + graph_.tasks[at(state.task)].forward_ms : state.busy_from;
    if (state.whole) record_->push_back({at(state.task), false, replica, state.busy_from, middle, 0, 0});
    record_->push_back({at(state.task), state.backward, replica, middle, state.busy_until, 0, 0});
  }
  passes_left_ -= state.whole ? 2 : 1;
  device.busy = false;
  device.idle_since = now_;
  set_mask(idle_, lane, true);
  for (const int section : graph_.device_sections[at(given.device)]) dirty_[at(section)] = 1;
  any_dirty_ = true;
  makespan_ms_ = now_;
  last_task_ = state.task;
  state.task = -1;
}

/// Ends the passes whose slots are free by now, and takes back those whose lanes have a gradient to work on instead.
void Simulator::settle_blocked() {
  slots_freed_ = false;
  std::size_t kept = 0;
  for (std::size_t n = 0; n < blocked_.size(); ++n) {
    const int lane = blocked_[n];
    const int task = lanes_[at(lane)].task;
    if (admit(task)) {
      finish_at_end(lane);
    } else if (lanes_[at(lane)].first_gradient >= 0) {
      withdraw(lane);
      start_backward(lane);
    } else {
      blocked_[kept++] = lane;
    }
  }
  blocked_.resize(kept);
}

/// As if the pass had not been started: nothing but its lane knows of it.
void Simulator::withdraw(int lane) {
  LaneState& state = lanes_[at(lane)];
  const PlanningGraph::Task& given = graph_.tasks[at(state.task)];
  const PlanningGraph::Section& section = graph_.sections[at(given.section)];
  DeviceState& device = devices_[at(graph_.lanes[at(lane)].device)];
  if (!section.shared) idle_ms_[at(given.section)] -= state.busy_from - device.idle_since;
  device.busy = false;
  set_mask(idle_, lane, true);
  if (section.has_backward) {
    --state.in_flight;
    set_mask(room_, lane, true);
  }
  put_inputs_back(lane, state.task);
  ahead_[at(given.section)] -= given.out_end - given.out_begin;
  ready_[at(given.task_class)].insert(rank_[at(state.task)]);
  ++ready_count_[at(given.section)];
  tasks_[at(state.task)].lane = -1;
  state.task = -1;
  for (const int other : graph_.device_sections[at(graph_.lanes[at(lane)].device)]) dirty_[at(other)] = 1;
  any_dirty_ = true;
}

/// Out of a deadlock of passes that wait at their ends for slots of each other; from now on slots are taken at the
/// start.
bool Simulator::withdraw_all() {
  if (blocked_.empty()) return false;
  careful_ = true;
  for (const int lane : blocked_) withdraw(lane);
  blocked_.clear();
  return true;
}

void Simulator::finish_forward(int task) {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  for (int n = given.out_begin; n < given.out_end; ++n) {
    const PlanningGraph::Link link = graph_.outputs[at(n)];
    const PlanningGraph::Edge& edge = graph_.edges[at(link.edge)];
    if (edge.slots != unlimited) {
      const PlanningGraph::Task& consumer = graph_.tasks[at(link.task)];
      int need = consumer.need_begin;
      while (graph_.needs[at(need)].edge != link.edge) ++need;
      if (!consumer.early) ledgers_[at(link.edge)].produce(now_);
      produced_ms_[at(need)] = std::min(produced_ms_[at(need)], now_);
    }
    if (edge.transfer_ms > 0) {
      send(at(link.edge), now_ + edge.transfer_ms, link.task);
    } else {
      deliver_input(link.task);
    }
  }
  if (graph_.sections[at(given.section)].has_backward) {
    deliver_gradient(task);
    return;
  }
  for (int n = given.in_begin; n < given.in_end; ++n) {
    const int producer = graph_.inputs[at(n)].task;
    if (graph_.sections[at(graph_.tasks[at(producer)].section)].has_backward) deliver_gradient(producer);
  }
}

void Simulator::finish_backward(int task) {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  for (int n = given.in_begin; n < given.in_end; ++n) {
    const PlanningGraph::Link link = graph_.inputs[at(n)];
    if (!graph_.sections[at(graph_.tasks[at(link.task)].section)].has_backward) continue;
    const double transfer_ms = graph_.edges[at(link.edge)].transfer_ms;
    if (transfer_ms > 0) {
      send(graph_.edges.size() + at(link.edge), now_ + transfer_ms, link.task);
    } else {
      deliver_gradient(link.task);
    }
  }
}

void Simulator::deliver_input(int task) {
  TaskState& state = tasks_[at(task)];
  if (--state.forward_needs > 0) return;
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  state.ready_ms = now_;
  dirty_[at(given.section)] = 1;
  any_dirty_ = true;
  if (rules_->discipline != DispatchRules::Discipline::list) return;
  ready_[at(given.task_class)].insert(rank_[at(task)]);
  ++ready_count_[at(given.section)];
}

void Simulator::deliver_gradient(int task) {
  TaskState& state = tasks_[at(task)];
  if (--state.backward_needs > 0) return;
  LaneState& lane = lanes_[at(state.lane)];
  next_gradient_[at(task)] = -1;
  if (lane.first_gradient < 0) {
    lane.first_gradient = task;
  } else {
    next_gradient_[at(lane.last_gradient)] = task;
  }
  lane.last_gradient = task;
  lane.gradient_work_ms += graph_.tasks[at(task)].backward_ms;
  set_mask(gradients_, state.lane, true);
  dirty_[at(graph_.tasks[at(task)].section)] = 1;
  any_dirty_ = true;
}

void Simulator::dispatch_all() {
  while (any_dirty_ || (slots_freed_ && !blocked_.empty())) {
    if (!blocked_.empty()) settle_blocked();
    any_dirty_ = false;
    for (const int section : dispatch_order_) {
      if (!dirty_[at(section)]) continue;
      dirty_[at(section)] = 0;
      dispatch(section);
    }
  }
}

void Simulator::dispatch(int section) {
  const PlanningGraph::Section& given = graph_.sections[at(section)];
  const bool listed = rules_->discipline == DispatchRules::Discipline::list;
  bool section_waits = false;
  for (int word = 0; word * 64 < given.lanes; ++word) {
    const std::size_t index = at(first_word_[at(section)] + word);
    std::uint64_t tried = 0;
    while (true) {
      const bool open = !section_waits && (!listed || ready_count_[at(section)] > 0);
      const std::uint64_t forward = open ? room_[index] : 0;
      const std::uint64_t candidates = idle_[index] & ~tried & (gradients_[index] | forward);
      if (candidates == 0) break;
      const int bit = rules_->last_lane_first ? 63 - std::countl_zero(candidates) : std::countr_zero(candidates);
      tried |= std::uint64_t{1} << bit;
      const int lane = given.first_lane + word * 64 + bit;
      if (devices_[at(graph_.lanes[at(lane)].device)].busy) continue;
      Waiting waiting = Waiting::lane;
      if (!start_next(lane, waiting) && waiting == Waiting::section) section_waits = true;
    }
  }
}

bool Simulator::start_next(int lane, Waiting& waiting) {
  ++steps_;
  LaneState& state = lanes_[at(lane)];
  const int section = graph_.lanes[at(lane)].section;
  const bool has_gradient = state.first_gradient >= 0;
  if (!has_gradient || prefers_forward(section)) {
    const bool room = state.in_flight < graph_.sections[at(section)].max_in_flight;
    const int task = room ? pick_forward(lane, waiting) : -1;
    if (task >= 0 && (admits_at_end(task) || admit(task))) {
      start_forward(lane, task);
      return true;
    }
  }
  if (!has_gradient) return false;
  start_backward(lane);
  return true;
}

bool Simulator::prefers_forward(int section) const {
  if (graph_.sections[at(section)].consumer_lanes == 0) return rules_->theta[at(section)] >= forward_first;
  return ahead_[at(section)] < rules_->theta[at(section)] * graph_.sections[at(section)].consumer_lanes;
}

int Simulator::pick_forward(int lane, Waiting& waiting) {
  if (rules_->discipline != DispatchRules::Discipline::list) return pick_in_order(lane);
  return pick_listed(lane, waiting);
}

int Simulator::pick_in_order(int lane) {
  const int section = graph_.lanes[at(lane)].section;
  int task = -1;
  if (rules_->discipline == DispatchRules::Discipline::lane_order) {
    const auto& queue = lane_queue_[at(lane)];
    if (lanes_[at(lane)].next_in_order == queue.size()) return -1;
    task = queue[lanes_[at(lane)].next_in_order];
  } else {
    const PlanningGraph::Section& given = graph_.sections[at(section)];
    if (next_in_order_[at(section)] == given.tasks) return -1;
    task = rules_->order[at(given.first_task + next_in_order_[at(section)])];
  }
  const TaskState& state = tasks_[at(task)];
  if (state.forward_needs > 0 || (state.lane >= 0 && state.lane != lane) || !may_take(lane, task)) return -1;
  return may_start(task) ? task : -1;
}

/// The most urgent ready task that this lane may take.
int Simulator::pick_listed(int lane, Waiting& waiting) {
  const PlanningGraph::Section& section = graph_.sections[at(graph_.lanes[at(lane)].section)];
  const int* order = rules_->order.data() + section.first_task;
  int best = -1;
  int best_rank = unlimited;
  bool lane_matters = false;
  for (int index = section.first_class; index < section.first_class + section.classes; ++index) {
    const PrioritySet& set = ready_[at(index)];
    const PlanningGraph::Class& kind = graph_.classes[at(index)];
    if (set.empty()) continue;
    ++steps_;
    int rank = set.next(0);
    for (int tries = 1; !may_start(order[rank]); ++tries) {
      // Tasks of one class promise alike; only what early consumers need differs.
      rank = (kind.binds || kind.joins) && tries < admission_tries ? set.next(rank + 1) : -1;
      if (rank < 0) break;
    }
    if (rank < 0) continue;
    lane_matters = true;
    if (rank >= best_rank) continue;
    if (kind.limited || (kind.fed && rules_->hungry_producers_first)) {
      const int task = pick_from_class(lane, index, rank);
      if (task < 0) continue;
      // A class stands at the place of its most urgent task, whichever of its tasks is taken.
      if (!rules_->hungry_producers_first) rank = rank_[at(task)];
      if (rank >= best_rank) continue;
      best = task;
    } else {
      best = order[rank];
    }
    best_rank = rank;
  }
  if (!lane_matters) waiting = Waiting::section;
  return best;
}

int Simulator::pick_from_class(int lane, int class_index, int first_rank) const {
  constexpr int looked_at = 24;
  const PlanningGraph::Section& section = graph_.sections[at(graph_.lanes[at(lane)].section)];
  const int* order = rules_->order.data() + section.first_task;
  const PlanningGraph::Class& kind = graph_.classes[at(class_index)];
  int best = -1;
  double least = never;
  int seen = 0;
  for (int rank = first_rank; rank >= 0 && seen < looked_at; rank = ready_[at(class_index)].next(rank + 1), ++seen) {
    const int task = order[rank];
    double wait = 0;
    ++steps_;
    if (rules_->hungry_producers_first) {
      wait = hunger(task);
      if (best >= 0 && wait >= least) continue;
    }
    if (kind.limited && !may_take(lane, task)) continue;
    if ((kind.binds || kind.joins) && !may_start(task)) continue;
    best = task;
    least = wait;
    if (!rules_->hungry_producers_first) break;
  }
  return best;
}

/// Whether its inputs can be said to have lain in slots of this lane.
bool Simulator::may_take(int lane, int task) const {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  if (given.need_begin == given.need_end) return true;
  const TaskState& state = tasks_[at(task)];
  const int replica = lane - graph_.sections[at(given.section)].first_lane;
  if (given.early && state.lane == lane) return true;
  for (int n = given.need_begin; n < given.need_end; ++n) {
    const PlanningGraph::Need need = graph_.needs[at(n)];
    const SlotLedger& ledger = ledgers_[at(need.edge)];
    const double* units = reserved_units_.data() + need.first_unit;
    steps_ += 1 + ledger.held() / 8;
    const bool fits = given.early ? ledger.can_take(replica, need.count, produced_ms_[at(n)], units)
                                  : ledger.can_claim(replica, produced_ms_[at(n)]);
    if (!fits) return false;
  }
  return true;
}

/// Milliseconds until the lane that made the task's input has nothing left to run, as far as can be seen.
double Simulator::hunger(int task) const {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  double least = never;
  for (int n = given.in_begin; n < given.in_end; ++n) {
    const int lane = tasks_[at(graph_.inputs[at(n)].task)].lane;
    const PlanningGraph::Section& section = graph_.sections[at(graph_.lanes[at(lane)].section)];
    if (!section.has_backward || section.max_in_flight == unlimited) continue;
    const LaneState& state = lanes_[at(lane)];
    const double busy_ms = std::max(state.busy_until - now_, 0.0) + state.gradient_work_ms;
    least = std::min(least, busy_ms + (section.max_in_flight - state.in_flight) * section.mean_forward_ms);
  }
  return least;
}

bool Simulator::admits_at_end(int task) const {
  const PlanningGraph::Class& kind = graph_.classes[at(graph_.tasks[at(task)].task_class)];
  if (rules_->discipline != DispatchRules::Discipline::list) return false;
  if (!rules_->slots_at_start.empty() && rules_->slots_at_start[at(kind.section)] != 0) return false;
  // Inputs in limited slots stay there until it is known when the pass has started.
  if (kind.limited && (kind.early || kind.promises.empty())) return false;
  return rules_->foresee_slots && !careful_ &&
         (!(kind.binds || kind.joins) || rules_->joint_slots != DispatchRules::JointSlots::all_at_start);
}

bool Simulator::may_start(int task) const {
  return admits_at_end(task) || may_admit(task);
}

bool Simulator::has_slots(const PlanningGraph::Class& kind) const {
  for (const PlanningGraph::Need& need : kind.promises) {
    if (!may_hold(need.edge, need.count)) return false;
  }
  return true;
}

bool Simulator::may_hold(int edge, int count) const {
  const SlotLedger& ledger = ledgers_[at(edge)];
  if (ledger.spare() < count) return false;
  return ledger.held() == 0 || ledger.held() + count <= most_waiting_[at(edge)];
}

/// May say yes where admit() finds too little for several consumers at once.
bool Simulator::may_admit(int task) const {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  const PlanningGraph::Class& kind = graph_.classes[at(given.task_class)];
  if (!has_slots(kind)) return false;
  if (!kind.binds && !kind.joins) return true;
  const bool whole = rules_->discipline == DispatchRules::Discipline::list;
  for (int n = given.out_begin; n < given.out_end; ++n) {
    const PlanningGraph::Link link = graph_.outputs[at(n)];
    if (graph_.edges[at(link.edge)].slots == unlimited) continue;
    if (!graph_.tasks[at(link.task)].early) {
      if (!may_promise_together(link.task, link.edge)) return false;
      continue;
    }
    if (whole && tasks_[at(link.task)].lane >= 0) continue;
    if (lane_for(link.task, whole ? -1 : link.edge) < 0) return false;
  }
  return true;
}

/// Takes the slots that the outputs of `task` will need, or none of them.
bool Simulator::admit(int task) {
  const PlanningGraph::Class& kind = graph_.classes[at(graph_.tasks[at(task)].task_class)];
  fresh_reservations_.clear();
  const bool enough = !(kind.binds || kind.joins) || reserve_for_consumers(task);
  if (!enough || !has_slots(kind)) {
    cancel_fresh();
    return false;
  }
  for (const PlanningGraph::Need& need : kind.promises) {
    for (int count = 0; count < need.count; ++count) ledgers_[at(need.edge)].promise();
  }
  tasks_[at(task)].admitted = true;
  return true;
}

/// In a list, all slots of a consumer at once, as others could take what it needs later on; where orders are kept,
/// those on this edge, as nobody overtakes.
bool Simulator::reserve_for_consumers(int task) {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  const bool whole = rules_->discipline == DispatchRules::Discipline::list;
  for (int n = given.out_begin; n < given.out_end; ++n) {
    const PlanningGraph::Link link = graph_.outputs[at(n)];
    if (graph_.edges[at(link.edge)].slots == unlimited) continue;
    if (!graph_.tasks[at(link.task)].early) {
      if (!promise_together(link.task, link.edge)) return false;
      continue;
    }
    if (whole && tasks_[at(link.task)].lane >= 0) continue;
    if (!reserve(link.task, whole ? -1 : link.edge)) return false;
  }
  return true;
}

/// Slots for one more input over `edge`; for all inputs where it is -1.
bool Simulator::reserve(int task, int edge) {
  const int lane = lane_for(task, edge);
  if (lane < 0) return false;
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  const int replica = lane - graph_.sections[at(given.section)].first_lane;
  TaskState& state = tasks_[at(task)];
  if (state.lane < 0) lanes_[at(lane)].bound_work_ms += given.forward_ms + given.backward_ms;
  state.lane = lane;
  for (int n = given.need_begin; n < given.need_end; ++n) {
    const PlanningGraph::Need need = graph_.needs[at(n)];
    if (edge >= 0 && need.edge != edge) continue;
    const int count = edge >= 0 ? 1 : need.count;
    ledgers_[at(need.edge)].reserve(replica, count, reserved_units_.data() + need.first_unit + reserved_[at(n)]);
    reserved_[at(n)] += count;
    fresh_reservations_.push_back({task, n, count});
  }
  return true;
}

/// Of a late task with inputs over several limited edges, the slots of this edge, or of all of them.
bool Simulator::promise_together(int task, int edge) {
  if (!may_promise_together(task, edge)) return false;
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  const bool all = rules_->joint_slots != DispatchRules::JointSlots::each_at_end;
  if (given.need_end - given.need_begin < 2) return true;  // its class promises for it
  for (int n = given.need_begin; n < given.need_end; ++n) {
    const int other = graph_.needs[at(n)].edge;
    if (reserved_[at(n)] > 0 || !(all || other == edge)) continue;
    reserved_[at(n)] = 1;
    ledgers_[at(other)].promise();
    fresh_reservations_.push_back({task, n, 1});
  }
  return true;
}

bool Simulator::may_promise_together(int task, int edge) const {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  const bool all = rules_->joint_slots != DispatchRules::JointSlots::each_at_end;
  if (given.need_end - given.need_begin < 2) return true;
  for (int n = given.need_begin; n < given.need_end; ++n) {
    const int other = graph_.needs[at(n)].edge;
    if (reserved_[at(n)] == 0 && (all || other == edge) && !may_hold(other, 1)) return false;
  }
  return true;
}

/// Takes back what a task that was not admitted has reserved so far.
void Simulator::cancel_fresh() {
  while (!fresh_reservations_.empty()) {
    cancel(fresh_reservations_.back());
    fresh_reservations_.pop_back();
  }
}

void Simulator::cancel(const Reservation& reservation) {
  const PlanningGraph::Task& given = graph_.tasks[at(reservation.task)];
  const PlanningGraph::Need need = graph_.needs[at(reservation.need)];
  TaskState& state = tasks_[at(reservation.task)];
  reserved_[at(reservation.need)] -= reservation.count;
  if (!given.early) {
    ledgers_[at(need.edge)].withdraw_promise();
    return;
  }
  const int replica = state.lane - graph_.sections[at(given.section)].first_lane;
  ledgers_[at(need.edge)].cancel(replica, reservation.count,
                                 reserved_units_.data() + need.first_unit + reserved_[at(reservation.need)]);
  const auto first = reserved_.begin() + given.need_begin;
  const auto last = reserved_.begin() + given.need_end;
  if (std::any_of(first, last, [](int count) { return count > 0; }) || !rules_->fixed_lane.empty()) return;
  lanes_[at(state.lane)].bound_work_ms -= given.forward_ms + given.backward_ms;
  state.lane = -1;
}

bool Simulator::can_reserve(int task, int edge, int lane) const {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  const int replica = lane - graph_.sections[at(given.section)].first_lane;
  for (int n = given.need_begin; n < given.need_end; ++n) {
    const PlanningGraph::Need need = graph_.needs[at(n)];
    if (edge >= 0 && need.edge != edge) continue;
    if (!ledgers_[at(need.edge)].can_reserve(replica, edge >= 0 ? 1 : need.count)) return false;
  }
  return true;
}

/// Of the lanes with the slots, the one that will be done with its work first; -1: none.
int Simulator::lane_for(int task, int edge) const {
  const int known = tasks_[at(task)].lane;
  if (known >= 0) return can_reserve(task, edge, known) ? known : -1;
  const PlanningGraph::Section& section = graph_.sections[at(graph_.tasks[at(task)].section)];
  int best = -1;
  double least = never;
  for (int lane = section.first_lane; lane < section.first_lane + section.lanes; ++lane) {
    const LaneState& state = lanes_[at(lane)];
    ++steps_;
    const double load = std::max(state.busy_until - now_, 0.0) + state.gradient_work_ms + state.bound_work_ms;
    if (load >= least || !can_reserve(task, edge, lane)) continue;
    best = lane;
    least = load;
  }
  return best;
}

void Simulator::start_forward(int lane, int task) {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  const PlanningGraph::Section& section = graph_.sections[at(given.section)];
  LaneState& state = lanes_[at(lane)];
  TaskState& started = tasks_[at(task)];
  take_inputs(lane, task);
  if (rules_->discipline == DispatchRules::Discipline::list) {
    ready_[at(given.task_class)].erase(rank_[at(task)]);
    --ready_count_[at(given.section)];
  }
  if (given.early && rules_->fixed_lane.empty())
    lanes_[at(started.lane)].bound_work_ms -= given.forward_ms + given.backward_ms;
  started.lane = lane;
  ++state.next_in_order;
  ++next_in_order_[at(given.section)];
  for (int n = given.in_begin; n < given.in_end; ++n) {
    const int producer_section = graph_.tasks[at(graph_.inputs[at(n)].task)].section;
    --ahead_[at(producer_section)];
    dirty_[at(producer_section)] = 1;
    any_dirty_ = true;
  }
  ahead_[at(given.section)] += given.out_end - given.out_begin;
  if (section.has_backward && ++state.in_flight >= section.max_in_flight) set_mask(room_, lane, false);
  if (rules_->discipline == DispatchRules::Discipline::section_order) {
    dirty_[at(given.section)] = 1;
    any_dirty_ = true;
  }

  double start_ms = now_;
  if (rules_->foresee_slots) {
    const double free_ms = devices_[at(graph_.lanes[at(lane)].device)].idle_since;
    start_ms = std::max({free_ms, started.ready_ms, now_ - given.forward_ms});
  }
  state.task = task;
  state.whole = runs_whole(task);
  const double length_ms = given.forward_ms + (state.whole ? given.backward_ms : 0);
  occupy(lane, start_ms, std::max(start_ms + length_ms, now_), state.whole);
}

/// A task that feeds nobody has its gradient at once, and others wait for its own: both passes are one event.
bool Simulator::runs_whole(int task) const {
  return rules_->whole_tasks && rules_->discipline == DispatchRules::Discipline::list &&
         graph_.tasks[at(task)].backward_needs == 1;
}

void Simulator::take_inputs(int lane, int task) {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  const TaskState& state = tasks_[at(task)];
  const int first_lane = graph_.sections[at(given.section)].first_lane;
  for (int n = given.need_begin; n < given.need_end; ++n) {
    const PlanningGraph::Need need = graph_.needs[at(n)];
    SlotLedger& ledger = ledgers_[at(need.edge)];
    if (!state.admitted) {
      reserved_units_[at(need.first_unit)] = ledger.set_aside(lane - first_lane, produced_ms_[at(n)]);
      continue;
    }
    slots_freed_ = true;
    if (!given.early) {
      ledger.claim(lane - first_lane, produced_ms_[at(n)], now_);
    } else if (state.lane == lane) {
      ledger.release(lane - first_lane, need.count, now_);
    } else {
      ledger.cancel(state.lane - first_lane, need.count, reserved_units_.data() + need.first_unit);
      ledger.take(lane - first_lane, need.count, produced_ms_[at(n)], now_);
    }
  }
}

/// Of a pass that may have been shifted: its inputs left their slots when it started.
void Simulator::free_inputs(int lane, int task) {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  const int replica = lane - graph_.sections[at(given.section)].first_lane;
  for (int n = given.need_begin; n < given.need_end; ++n) {
    const int edge = graph_.needs[at(n)].edge;
    ledgers_[at(edge)].cancel(replica, 1, &lanes_[at(lane)].busy_from);
    dirty_[at(graph_.edges[at(edge)].from)] = 1;
    slots_freed_ = any_dirty_ = true;
  }
}

void Simulator::put_inputs_back(int lane, int task) {
  const PlanningGraph::Task& given = graph_.tasks[at(task)];
  const int replica = lane - graph_.sections[at(given.section)].first_lane;
  for (int n = given.need_begin; n < given.need_end; ++n) {
    const PlanningGraph::Need need = graph_.needs[at(n)];
    ledgers_[at(need.edge)].put_back(replica, produced_ms_[at(n)], reserved_units_[at(need.first_unit)]);
  }
  for (int n = given.in_begin; n < given.in_end; ++n) {
    ++ahead_[at(graph_.tasks[at(graph_.inputs[at(n)].task)].section)];
  }
}

void Simulator::start_backward(int lane) {
  LaneState& state = lanes_[at(lane)];
  int* link = &state.first_gradient;
  if (rules_->ordered_gradients) {
    for (int* other = link; *other >= 0; other = &next_gradient_[at(*other)]) {
      if (rank_[at(*other)] < rank_[at(*link)]) link = other;
    }
  }
  const int task = *link;
  *link = next_gradient_[at(task)];
  if (state.last_gradient == task) {
    state.last_gradient = state.first_gradient;
    while (state.last_gradient >= 0 && next_gradient_[at(state.last_gradient)] >= 0) {
      state.last_gradient = next_gradient_[at(state.last_gradient)];
    }
  }
  const double backward_ms = graph_.tasks[at(task)].backward_ms;
  state.gradient_work_ms -= backward_ms;
  set_mask(gradients_, lane, state.first_gradient >= 0);
  state.task = task;
  state.whole = false;
  occupy(lane, now_, now_ + backward_ms, true);
}

void Simulator::occupy(int lane, double start_ms, double end_ms, bool backward) {
  LaneState& state = lanes_[at(lane)];
  const PlanningGraph::Lane& given = graph_.lanes[at(lane)];
  const PlanningGraph::Section& section = graph_.sections[at(given.section)];
  DeviceState& device = devices_[at(given.device)];
  if (!section.shared) {
    double& idle_ms = idle_ms_[at(given.section)];
    idle_ms += start_ms - device.idle_since;
    if (section.work_ms + idle_ms > cutoff_ms_ * section.lanes) hopeless_ = true;
  }
  device.busy = true;
  state.backward = backward;
  state.busy_from = start_ms;
  state.busy_until = end_ms;
  set_mask(idle_, lane, false);
  push_end({end_ms, lane});
}

void Simulator::push_end(PassEnd end) {
  std::size_t hole = ends_.size();
  ends_.push_back(end);
  while (hole > 0) {
    const std::size_t parent = (hole - 1) / 2;
    if (ends_[parent].at <= end.at) break;
    ends_[hole] = ends_[parent];
    hole = parent;
  }
  ends_[hole] = end;
}

Simulator::PassEnd Simulator::pop_end() {
  const PassEnd first = ends_.front();
  const PassEnd last = ends_.back();
  ends_.pop_back();
  const std::size_t count = ends_.size();
  std::size_t hole = 0;
  while (count > 0) {
    std::size_t child = 2 * hole + 1;
    if (child >= count) break;
    if (child + 1 < count && ends_[child + 1].at < ends_[child].at) ++child;
    if (ends_[child].at >= last.at) break;
    ends_[hole] = ends_[child];
    hole = child;
  }
  if (count > 0) ends_[hole] = last;
  return first;
}

void Simulator::set_mask(std::vector<std::uint64_t>& mask, int lane, bool value) {
  const Bit place = bit_of_lane_[at(lane)];
  std::uint64_t& word = mask[place.word];
  word = value ? word | place.bit : word & ~place.bit;
}

}  // namespace maestro
