// SPDX-License-Identifier: Apache-2.0
#include "actors/plan/job_rehearsal.hpp"

#include <algorithm>
#include <optional>
#include <tuple>

#include "actors/plan/emulated_step_end.hpp"
#include "actors/plan/planning_options.hpp"

namespace maestro {

namespace {

/// Units whose passes have been measured when a step is planned: those before the steps that are announced ahead.
std::size_t measured_before(std::size_t unit, std::int64_t ahead) {
  const auto open = static_cast<std::size_t>(ahead) + 1;
  return unit > open ? unit - open : 0;
}

StepEndOptions step_end_of(const JobPlan& plan, const LaneKey& lane) {
  const GraphNode& node = plan.graph.node(lane.section);
  StepEndOptions options;
  options.trained = node.trained();
  options.ranks = static_cast<std::size_t>(node.layout.ranks());
  options.optimizer_sharded = plan.sections[lane.section.value()].config.zero && node.replicas > 1;
  options.timed_sum = emulated_step_end(plan, lane.section).sum_ms > 0;
  options.awaits_total = joins_norms(plan) || node.stages > 1;
  options.writes_snapshot = lane.replica == ReplicaIndex(0);
  return options;
}

/// Returns the devices of all lanes: a device's thread belongs to its process, so two processes share none.
std::vector<std::vector<std::vector<int>>> device_numbers(const JobPlan& plan) {
  std::vector<std::vector<std::vector<int>>> devices(plan.graph.nodes().size());
  std::map<std::tuple<ProcessId, DeviceId>, int> numbers;
  int next = 0;
  for (const ReplicaPlacement& place : plan.places) {
    std::vector<int>& lane = devices[place.section.value()].emplace_back();
    const bool source = plan.graph.node(place.section).role == Role::source;  // has a thread of its own
    if (source) lane.push_back(next++);
    for (std::size_t rank = 0; !source && rank < place.devices.size(); ++rank) {
      const auto [known, fresh] = numbers.try_emplace({place.process, place.devices[rank]}, next);
      if (fresh) ++next;
      lane.push_back(known->second);
    }
  }
  return devices;
}

/// The passes of a plan with their times, as a run would report them to its planner.
std::vector<MeasuredPass> measured_passes(const JobPlan& plan, const StepPlan& step, const JobTimes& times) {
  std::vector<MeasuredPass> measured;
  for (const MicroBatchPlan& batch : step.micro_batches) {
    if (plan.graph.node(batch.section).role == Role::source) continue;
    const PassCost ms = times.pass(batch);
    const double speed = plan.sections[batch.section.value()].config.replica_speed(batch.replica.value());
    if (ms.forward > 0) measured.push_back({batch.section, false, batch.samples, ms.forward * speed});
    if (ms.backward > 0) measured.push_back({batch.section, true, batch.samples, ms.backward * speed});
  }
  return measured;
}

/// The times of a job, changed.
class ChangedTimes {
 public:
  ChangedTimes(const JobPlan& plan, const JobTimes& times, const RehearsalChange& change)
      : plan_(&plan), times_(&times), change_(&change) {
    for (const ReplicaPlacement& place : plan.places) processes_[{place.section, place.replica}] = place.process;
    several_ = std::ranges::any_of(plan.places, [](const auto& place) { return place.process != ProcessId(0); });
  }

  [[nodiscard]] RehearsalTimes times() const {
    RehearsalTimes made;
    made.passes = [this](const MicroBatchPlan& batch) { return pass(batch); };
    made.actions = [this](const LaneKey& lane, StepAction action) { return this->action(lane, action); };
    made.transfer = [this](const LaneKey& from, const LaneKey& to, Channel, std::int64_t rows) {
      return transfer(from, to, rows);
    };
    made.hop_ms = times_->hop_ms;
    made.coordinator = [this](const LaneKey& lane) {
      return processes_.at(lane) == ProcessId(0) ? 0 : change_->latency_ms;
    };
    return made;
  }

 private:
  [[nodiscard]] PassCost pass(const MicroBatchPlan& batch) const {
    const PassCost cost = times_->pass(batch);
    const auto faster = change_->faster.find(plan_->graph.node(batch.section).section_name());
    if (faster == change_->faster.end()) return cost;
    return {cost.forward / faster->second, cost.backward / faster->second};
  }
  [[nodiscard]] double action(const LaneKey& lane, StepAction action) const {
    const double ms = times_->action(lane.section, action);
    if (action == StepAction::await_total) return ms + (several_ ? 2 * change_->latency_ms : 0);
    if (!is_exchange(action)) return ms;
    const GraphNode& node = plan_->graph.node(lane.section);
    const bool apart = std::ranges::any_of(plan_->places, [&](const ReplicaPlacement& place) {
      return place.section == lane.section && place.process != processes_.at(lane);
    });
    if (node.replicas == 1) return 0;
    return ms + (apart ? 2 * change_->latency_ms : 0);  // the parts go to their owner, and the sums come back
  }
  [[nodiscard]] TransferTime transfer(const LaneKey& from, const LaneKey& to, std::int64_t rows) const {
    if (!times_->apart && !plan_->transport.force_rma && processes_.at(from) == processes_.at(to)) return {};
    const bool credit = rows == 0;  // a message
    const double ms = credit ? 0 : times_->write(from.section, to.section, rows);
    return {ms + change_->latency_ms, false, ms};
  }

  const JobPlan* plan_;
  const JobTimes* times_;
  const RehearsalChange* change_;
  std::map<LaneKey, ProcessId> processes_;
  bool several_ = false;
};

}  // namespace

TimedJob timed_job(const JobPlan& plan) {
  TimedJob job{&plan.graph, plan.cost, joins_norms(plan)};
  for (const PlannedSection& section : plan.sections) job.speeds.push_back(section.config.replica_speeds);
  return job;
}

JobTimes traced_job_times(const JobPlan& plan, const TracedRun& run, const TracedTimes& times) {
  JobTimes made;
  made.pass = [&plan, &times](const MicroBatchPlan& batch) { return times.pass(timed_job(plan), batch); };
  made.action = [&plan, &times](SectionId section, StepAction action) {
    return times.action(timed_job(plan), section, action);
  };
  made.write = [&plan, &times](SectionId from, SectionId to, std::int64_t rows) {
    return times.write(plan.graph.node(from).name, plan.graph.node(to).name, rows);
  };
  made.hop_ms = run.hop_ms;
  return made;
}

Result<std::vector<StepPlan>> plans_of(const JobPlan& plan, const std::vector<TracedUnit>& units,
                                       const JobTimes* times) {
  StepPlannerOptions options = planner_options(plan);
  PolicyOptions policy = policy_options(plan);
  policy.deterministic = true;  // a search by the clock would give another plan each time
  options.policy = make_policy(plan.schedule.policy, policy);
  StepPlanner planner(std::move(options));
  const bool follows = times != nullptr && !plan.train.deterministic;
  std::vector<StepPlan> plans;
  std::size_t measured = 0;  // units
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    for (; follows && measured < measured_before(unit, plan.train.ahead); ++measured) {
      for (const MeasuredPass& pass : measured_passes(plan, plans[measured], *times)) planner.costs().measured(pass);
    }
    Result<PlannedStep> planned = planner.plan(units[unit].step, units[unit].pass, units[unit].samples, 1);
    if (!planned) return planned.error();
    plans.push_back(std::move(planned->plan));
  }
  return plans;
}

Result<Rehearsed> rehearse(const JobPlan& plan, const std::vector<TracedUnit>& given,
                           const std::vector<StepPlan>& plans, const JobTimes& times, const RehearsalChange& change) {
  const ChangedTimes changed(plan, times, change);
  RehearsalOptions options;
  options.graph = &plan.graph;
  options.limits = flow_limits(plan);
  options.devices = device_numbers(plan);
  options.ahead = scheduling_policy(plan)->synchronous() ? 0 : plan.train.ahead;
  options.joined_norms = joins_norms(plan);
  options.step_ends = [&plan](const LaneKey& lane) { return step_end_of(plan, lane); };
  options.times = changed.times();
  std::vector<RehearsalUnit> units;
  for (std::size_t at = 0; at < plans.size(); ++at) {
    units.push_back({plans[at], false, given[at].planning_ms});
    if (!given[at].checkpoint) continue;
    RehearsalUnit& checkpoint = units.emplace_back();
    checkpoint.plan.step = plans[at].step;
    checkpoint.checkpoint = true;
  }
  return Rehearsal(std::move(options)).play(std::move(units));
}

Result<SteadyRehearsal> rehearse_steps(const JobPlan& plan, const std::vector<TracedUnit>& units, const JobTimes& times,
                                       const RehearsalChange& change) {
  Result<std::vector<StepPlan>> plans = plans_of(plan, units, &times);
  if (!plans) return plans.error();
  Result<Rehearsed> rehearsed = rehearse(plan, units, *plans, times, change);
  if (!rehearsed) return rehearsed.error();
  const auto after = static_cast<std::size_t>(plan.train.ahead) + 1;
  std::vector<double> ends = rehearsed->unit_ends_ms;
  ends.resize(ends.size() - std::min(ends.size(), after));
  const std::optional<SteadySteps> time = steady_steps(ends);
  if (time) return SteadyRehearsal{std::move(*plans), std::move(*rehearsed), *time};
  return Error{ErrorCode::invalid_argument, "a rehearsal needs " + std::to_string(after + 4) + " steps or more, not " +
                                                std::to_string(units.size())};
}

}  // namespace maestro
