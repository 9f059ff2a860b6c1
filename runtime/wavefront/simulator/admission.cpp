// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/simulator/admission.hpp"

#include <algorithm>
#include <cmath>

namespace maestro {

Admission::Admission(const PlanningGraph& graph, const Lanes& lanes)
    : graph_(graph),
      lanes_(lanes),
      ledgers_(graph.edges.size()),
      most_waiting_(graph.edges.size()),
      lane_of_(graph.tasks.size()),
      admitted_(graph.tasks.size()),
      at_end_(graph.classes.size()),
      bound_work_ms_(graph.lanes.size()),
      reserved_units_(graph.reserved_units),
      reserved_(graph.needs.size()),
      produced_ms_(graph.needs.size()) {}

void Admission::reset(const DispatchRules& rules) {
  rules_ = &rules;
  for (std::size_t edge = 0; edge < ledgers_.size(); ++edge) {
    const PlanningGraph::Edge& given = graph_.edges[edge];
    const int lanes = graph_.sections[given.to].lanes;
    const double depth = rules.depth.empty() ? EventQueue::never : rules.depth[edge] * lanes + given.slots - 1;
    most_waiting_[edge] = depth < unlimited ? static_cast<int>(std::ceil(depth)) : unlimited;
    if (given.slots != unlimited) ledgers_[edge].reset(lanes, given.slots);
  }
  lane_of_.assign(lane_of_.size(), -1);
  for (std::size_t task = 0; task < rules.fixed_lane.size(); ++task) {
    lane_of_[task] = graph_.lane_of(graph_.tasks[task].section, rules.fixed_lane[task]);
  }
  admitted_.assign(admitted_.size(), 0);
  bound_work_ms_.assign(bound_work_ms_.size(), 0);
  reserved_.assign(reserved_.size(), 0);
  produced_ms_.assign(produced_ms_.size(), EventQueue::never);
  slots_freed_ = false;
  foreseeing_ = rules.foresee_slots;
  find_classes_at_end();
}

void Admission::stop_foreseeing() {
  foreseeing_ = false;
  find_classes_at_end();
}

void Admission::find_classes_at_end() {
  const bool joint_at_start = rules_->joint_slots == DispatchRules::JointSlots::all_at_start;
  for (std::size_t index = 0; index < at_end_.size(); ++index) {
    const PlanningGraph::Class& kind = graph_.classes[index];
    const bool at_start = !rules_->slots_at_start.empty() && rules_->slots_at_start[kind.section] != 0;
    // Inputs in limited slots stay there until the start of the pass is known.
    const bool holds_inputs = kind.limited && (kind.early || kind.promises.empty());
    at_end_[index] =
        foreseeing_ && whole_tasks() && !at_start && !holds_inputs && !((kind.binds || kind.joins) && joint_at_start);
  }
}

bool Admission::inputs_fit(int lane, int task) {
  const bool early = graph_.tasks[task].early;
  if (early && lane_of_[task] == lane) return true;
  const int replica = graph_.replica_of(lane);
  for (const PlanningGraph::Need& need : graph_.needs_of(task)) {
    const SlotLedger& ledger = ledgers_[need.edge];
    const double* units = reserved_units_.data() + need.first_unit;
    steps_ += 1 + ledger.held() / 8;
    const bool fits = early ? ledger.can_take(replica, need.count, produced_ms_[need.number], units)
                            : ledger.can_claim(replica, produced_ms_[need.number]);
    if (!fits) return false;
  }
  return true;
}

bool Admission::has_slots(const PlanningGraph::Class& kind) const {
  for (const PlanningGraph::Need& need : kind.promises) {
    if (!may_hold(need.edge, need.count)) return false;
  }
  return true;
}

bool Admission::may_hold(int edge, int count) const {
  const SlotLedger& ledger = ledgers_[edge];
  if (ledger.spare() < count) return false;
  return ledger.held() == 0 || ledger.held() + count <= most_waiting_[edge];
}

bool Admission::may_reserve_for_consumers(int task) {
  for (const PlanningGraph::Link& link : graph_.outputs_of(task)) {
    if (graph_.edges[link.edge].slots == unlimited) continue;
    if (!graph_.tasks[link.task].early) {
      if (!may_promise_together(link.task, link.edge)) return false;
      continue;
    }
    if (whole_tasks() && lane_of_[link.task] >= 0) continue;
    if (lane_for(link.task, whole_tasks() ? all_edges : link.edge) < 0) return false;
  }
  return true;
}

bool Admission::admit(int task) {
  const PlanningGraph::Class& kind = graph_.class_of(task);
  fresh_.clear();
  const bool enough = !(kind.binds || kind.joins) || reserve_for_consumers(task);
  if (!enough || !has_slots(kind)) {
    cancel_fresh();
    return false;
  }
  for (const PlanningGraph::Need& need : kind.promises) {
    for (int count = 0; count < need.count; ++count) ledgers_[need.edge].promise();
  }
  admitted_[task] = 1;
  return true;
}

/// Reserves slots for a task's consumers. In a list it takes all slots of a consumer at once, because other tasks could
/// take the slots that it needs later; if orders are kept, it takes only slots on this edge, because no task overtakes
/// another.
bool Admission::reserve_for_consumers(int task) {
  for (const PlanningGraph::Link& link : graph_.outputs_of(task)) {
    if (graph_.edges[link.edge].slots == unlimited) continue;
    if (!graph_.tasks[link.task].early) {
      if (!promise_together(link.task, link.edge)) return false;
      continue;
    }
    if (whole_tasks() && lane_of_[link.task] >= 0) continue;
    if (!reserve(link.task, whole_tasks() ? all_edges : link.edge)) return false;
  }
  return true;
}

/// Reserves slots for one more input over `edge`, or for all inputs over all edges.
bool Admission::reserve(int task, int edge) {
  const int lane = lane_for(task, edge);
  if (lane < 0) return false;
  if (lane_of_[task] < 0) bound_work_ms_[lane] += work_ms(lane, task);
  lane_of_[task] = lane;
  for (const PlanningGraph::Need& need : graph_.needs_of(task)) {
    if (edge != all_edges && need.edge != edge) continue;
    int& reserved = reserved_[need.number];
    const int count = edge != all_edges ? 1 : need.count;
    ledgers_[need.edge].reserve(graph_.replica_of(lane), count, reserved_units_.data() + need.first_unit + reserved);
    reserved += count;
    fresh_.push_back({task, need.number, count});
  }
  return true;
}

/// Promises a slot on this edge, or on all edges, to a late task with inputs over several limited edges.
bool Admission::promise_together(int task, int edge) {
  if (!may_promise_together(task, edge)) return false;
  const bool all = rules_->joint_slots != DispatchRules::JointSlots::each_at_end;
  const auto needs = graph_.needs_of(task);
  if (needs.size() < 2) return true;  // its class makes the promises
  for (const PlanningGraph::Need& need : needs) {
    if (reserved_[need.number] > 0 || !(all || need.edge == edge)) continue;
    reserved_[need.number] = 1;
    ledgers_[need.edge].promise();
    fresh_.push_back({task, need.number, 1});
  }
  return true;
}

bool Admission::may_promise_together(int task, int edge) const {
  const bool all = rules_->joint_slots != DispatchRules::JointSlots::each_at_end;
  const auto needs = graph_.needs_of(task);
  if (needs.size() < 2) return true;
  return std::all_of(needs.begin(), needs.end(), [&](const PlanningGraph::Need& need) {
    return reserved_[need.number] != 0 || !(all || need.edge == edge) || may_hold(need.edge, 1);
  });
}

/// Releases the reservations of a task that was not admitted.
void Admission::cancel_fresh() {
  while (!fresh_.empty()) {
    cancel(fresh_.back());
    fresh_.pop_back();
  }
}

void Admission::cancel(const Reservation& reservation) {
  const int task = reservation.task;
  const PlanningGraph::Need& need = graph_.needs[reservation.need];
  reserved_[need.number] -= reservation.count;
  if (!graph_.tasks[task].early) {
    ledgers_[need.edge].withdraw_promise();
    return;
  }
  ledgers_[need.edge].cancel(graph_.replica_of(lane_of_[task]), reservation.count,
                             reserved_units_.data() + need.first_unit + reserved_[need.number]);
  const auto needs = graph_.needs_of(task);
  const bool holds =
      std::any_of(needs.begin(), needs.end(), [&](const auto& other) { return reserved_[other.number] > 0; });
  if (holds || !rules_->fixed_lane.empty()) return;
  bound_work_ms_[lane_of_[task]] -= work_ms(lane_of_[task], task);
  lane_of_[task] = -1;
}

bool Admission::can_reserve(int task, int edge, int lane) const {
  const int replica = graph_.replica_of(lane);
  for (const PlanningGraph::Need& need : graph_.needs_of(task)) {
    if (edge != all_edges && need.edge != edge) continue;
    if (!ledgers_[need.edge].can_reserve(replica, edge != all_edges ? 1 : need.count)) return false;
  }
  return true;
}

/// Returns, among the lanes with the slots, the lane that completes its work and the task first; -1 if there is none.
int Admission::lane_for(int task, int edge) {
  const int known = lane_of_[task];
  if (known >= 0) return can_reserve(task, edge, known) ? known : -1;
  const PlanningGraph::Section& section = graph_.section_of(task);
  int best = -1;
  double least = EventQueue::never;
  for (int lane = section.first_lane; lane < section.first_lane + section.lanes; ++lane) {
    ++steps_;
    // Counts only the task's extra time on slower lanes; the fastest lanes' time is common to all lanes.
    const double slower = work_ms(lane, task) * (1 - graph_.lanes[lane].speed);
    const double load = lanes_.backlog_ms(lane) + bound_work_ms_[lane] + slower;
    if (load >= least || !can_reserve(task, edge, lane)) continue;
    best = lane;
    least = load;
  }
  return best;
}

void Admission::take_inputs(int lane, int task, double now_ms) {
  const bool early = graph_.tasks[task].early;
  const int replica = graph_.replica_of(lane);
  const int bound = lane_of_[task];
  for (const PlanningGraph::Need& need : graph_.needs_of(task)) {
    SlotLedger& ledger = ledgers_[need.edge];
    double* units = reserved_units_.data() + need.first_unit;
    const double produced_ms = produced_ms_[need.number];
    if (!admitted(task)) {
      *units = ledger.set_aside(replica, produced_ms);
      continue;
    }
    slots_freed_ = true;
    if (!early) {
      ledger.claim(replica, produced_ms, now_ms);
    } else if (bound == lane) {
      ledger.release(replica, need.count, now_ms);
    } else {
      ledger.cancel(graph_.replica_of(bound), need.count, units);
      ledger.take(replica, need.count, produced_ms, now_ms);
    }
  }
  if (early && rules_->fixed_lane.empty()) bound_work_ms_[bound] -= work_ms(bound, task);
  lane_of_[task] = lane;
}

void Admission::free_inputs(int lane, int task, double start_ms) {
  for (const PlanningGraph::Need& need : graph_.needs_of(task)) {
    ledgers_[need.edge].cancel(graph_.replica_of(lane), 1, &start_ms);
    slots_freed_ = true;
  }
}

void Admission::put_inputs_back(int lane, int task) {
  for (const PlanningGraph::Need& need : graph_.needs_of(task)) {
    ledgers_[need.edge].put_back(graph_.replica_of(lane), produced_ms_[need.number], reserved_units_[need.first_unit]);
  }
  lane_of_[task] = -1;
}

void Admission::input_made(const PlanningGraph::Link& link, double now_ms) {
  const auto needs = graph_.needs_of(link.task);
  const PlanningGraph::Need& need =
      *std::find_if(needs.begin(), needs.end(), [&](const auto& n) { return n.edge == link.edge; });
  if (!graph_.tasks[link.task].early) ledgers_[link.edge].produce(now_ms);
  produced_ms_[need.number] = std::min(produced_ms_[need.number], now_ms);
}

}  // namespace maestro
