// SPDX-License-Identifier: Apache-2.0
#include "actors/run/watch/step_watch.hpp"

#include <algorithm>

#include "runtime/wavefront/lower_bound.hpp"

namespace maestro {

StepWatch::StepWatch(const SectionGraph& graph, StepPlanned planned)
    : planned_(std::move(planned.planned)),
      planning_ms_(planned.planning_ms),
      measured_(planned_->workload),
      busy_ms_(measured_.sections.size()),
      times_(measured_.tasks.size()),
      task_of_(graph.nodes().size()),
      tokens_(graph.nodes().size()),
      left_(graph.nodes().size()) {
  for (std::size_t task = 0; task < planned_->tasks.size(); ++task) {
    const auto& [section, index] = planned_->tasks[task];
    auto& tasks = task_of_[section.value()];
    if (tasks.size() <= index) tasks.resize(index + 1);  // micro-batches are numbered without gaps
    tasks[index] = task;
  }
  for (const MicroBatchPlan& batch : planned_->plan.micro_batches) {
    tokens_[batch.section.value()] = batch.step_tokens;
    if (task_of(batch.section, batch.index)) ++left_[batch.section.value()];
  }
  for (std::size_t task = 0; task < planned_->tasks.size(); ++task) {
    if (active(planned_->tasks[task].first)) continue;
    measured_.tasks[task].forward_ms = measured_.tasks[task].backward_ms = 0;  // trained already
  }
  for (WorkloadEdge& edge : measured_.edges) edge.transfer_ms = 0;  // the times are means: some transfers were shorter
  phases_ = PhaseCounts(graph, planned_->plan);
}

std::optional<std::size_t> StepWatch::task_of(SectionId section, std::uint32_t index) const {
  const auto& tasks = task_of_.at(section.value());
  return index < tasks.size() ? std::optional(tasks[index]) : std::nullopt;
}

void StepWatch::done(const MicroBatchDone& message, Clock::time_point now) {
  const auto age =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(message.age_ms));
  const std::optional<std::size_t> found = task_of(message.section, message.index);
  if (!found) return;
  --left_[message.section.value()];
  WorkloadTask& task = measured_.tasks[*found];
  const WorkloadSection& section = measured_.sections[task.section];
  const double speed = section.speed(message.replica.value());  // tasks have the times of the fastest lanes
  const bool apart = section.has_backward;                      // otherwise both passes ran together
  task.forward_ms = (message.forward_ms + (apart ? 0 : message.backward_ms)) * speed;
  task.backward_ms = apart ? message.backward_ms * speed : 0;
  busy_ms_[task.section] += message.forward_ms + message.backward_ms;
  times_[*found] = {message.forward_ms, message.backward_ms};
  begin_ = begin_ ? std::min(*begin_, now - age) : now - age;
  end_ = now;
}

SchedulingRow StepWatch::row(Clock::time_point run_began) const {
  SchedulingRow row;
  row.step = planned_->plan.step;
  row.planning_ms = planning_ms_;
  row.planned_ms = planned_->schedule.makespan_ms;
  const auto ms = [](Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); };
  if (begin_) row.begin_ms = ms(*begin_ - run_began);
  if (!measured_.tasks.empty()) row.lower_bound_ms = lower_bound_ms(measured_);
  // If the coordinator handles late reports all at once, the passes seem to have ended together.
  if (begin_) row.makespan_ms = std::max(ms(end_ - *begin_), row.lower_bound_ms);
  const std::vector<double> planned = utilization(planned_->workload, planned_->schedule);
  for (std::size_t index = 0; index < planned.size(); ++index) {
    row.planned_utilization[measured_.sections[index].name] = planned[index];
  }
  for (std::size_t index = 0; index < busy_ms_.size(); ++index) {
    const WorkloadSection& section = measured_.sections[index];
    const double room = row.makespan_ms * static_cast<double>(section.replicas);
    row.utilization[section.name] = room > 0 ? busy_ms_[index] / room : 0;
  }
  return row;
}

std::vector<MeasuredPass> StepWatch::measured() const {
  std::vector<MeasuredPass> passes;
  for (const MicroBatchPlan& batch : planned_->plan.micro_batches) {
    const std::optional<std::size_t> found = task_of(batch.section, batch.index);
    if (!found) continue;
    const double speed = measured_.sections[measured_.tasks[*found].section].speed(batch.replica.value());
    const PassCost& took = times_[*found];
    passes.push_back({batch.section, false, batch.samples, took.forward * speed});
    if (took.backward > 0) passes.push_back({batch.section, true, batch.samples, took.backward * speed});
  }
  return passes;
}

PassTimes StepWatch::times() const {
  PassTimes times(task_of_.size());
  for (std::size_t section = 0; section < task_of_.size(); ++section) {
    if (!task_of_[section].empty() && !active(SectionId(section))) return {};
    for (const std::size_t task : task_of_[section]) times[section].push_back(times_[task]);
  }
  return times;
}

}  // namespace maestro
