// SPDX-License-Identifier: Apache-2.0
#include "actors/job/job_rehearsal.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include "actors/job/emulated_step_end.hpp"
#include "actors/job/planning_options.hpp"
#include "runtime/core/random.hpp"
#include "sections/decoder/generation.hpp"

namespace maestro {

namespace {

/// Returns how many units have measured passes when `unit` is planned: all before the steps that are announced ahead.
std::size_t measured_before(std::size_t unit, std::int64_t ahead) {
  const auto open = static_cast<std::size_t>(ahead) + 1;
  return unit > open ? unit - open : 0;
}

StepEndOptions step_end_of(const ResolvedJob& plan, const LaneKey& lane, bool publishes) {
  const GraphNode& node = plan.graph.node(lane.section);
  StepEndOptions options;
  options.trained = node.trained();
  options.ranks = static_cast<std::size_t>(node.layout_of(lane.replica).ranks());
  options.optimizer_sharded = plan.sections[lane.section.value()].config.zero && node.replicas > 1;
  options.exchanges_rows = node.replicas > 1 && !plan.held[lane.section.value()].tables.empty();
  options.timed_sum = emulated_step_end(plan, lane.section).sum_ms > 0;
  options.awaits_total = joins_norms(plan) || node.stages > 1;
  options.writes_snapshot = lane.replica == ReplicaIndex(0);
  options.publishes = publishes && plan.graph.publishes(lane.section);
  return options;
}

/// Adds the devices of all lanes, and their cores if a host's devices share cores. A device's thread belongs to its
/// process: processes do not share devices, but processes of a host share its cores. A section's share of a GPU and a
/// section's stream count as separate devices; the GPU is the core of both.
void add_devices(const ResolvedJob& plan, const JobTimes& times, RehearsalOptions& options) {
  const std::int64_t cores = times.cores;
  options.devices.resize(plan.graph.nodes().size());
  options.streams = times.sharing == DeviceSharing::streams;
  std::map<std::tuple<ProcessId, DeviceId, SectionId>, int> numbers;
  std::map<std::tuple<std::uint32_t, DeviceId>, int> core_of;  // by a host's CPU core, or a process' GPU
  int next = 0;
  for (const ReplicaPlacement& place : plan.places) {
    std::vector<int>& lane = options.devices[place.section.value()].emplace_back();
    const bool source = plan.graph.node(place.section).role == Role::source;  // runs on a separate thread
    const bool part = plan.sections[place.section.value()].config.share < 1;
    if (source) lane.push_back(next++);
    for (std::size_t rank = 0; !source && rank < place.devices.size(); ++rank) {
      const DeviceId& device = place.devices[rank];
      const bool cpu = device.kind == DeviceId::Kind::cpu;
      const bool measured = times.sharing == DeviceSharing::measured && device.kind == DeviceId::Kind::cuda;
      const bool stream = options.streams && !cpu;
      const bool own = part || measured || stream;
      const auto [known, fresh] = numbers.try_emplace({place.process, device, own ? place.section : SectionId()}, next);
      lane.push_back(known->second);
      if (!fresh) continue;
      ++next;
      DeviceId core = device;
      std::uint32_t owner = place.process.value();
      if (cpu && cores > 0) {
        core.index = static_cast<int>(device.index % cores);
        owner = plan.options.launch_info.place.hosts.at(owner);
      } else if (!stream || (part && !times.demand)) {
        continue;
      }
      if (part && !cpu) {
        options.demands.resize(static_cast<std::size_t>(next), 1);
        options.demands.back() = times.demand(place.section);
      }
      options.cores.resize(static_cast<std::size_t>(next), -1);
      options.cores.back() = core_of.try_emplace({owner, core}, std::ssize(core_of)).first->second;
    }
  }
  if (!options.streams) return;
  std::vector<int> streams(core_of.size());
  for (const int core : options.cores) {
    if (core >= 0) ++streams[static_cast<std::size_t>(core)];
  }
  for (int& core : options.cores) {
    if (core >= 0 && streams[static_cast<std::size_t>(core)] == 1) core = -1;  // same times (CO-2), computed faster
  }
}

/// Returns the job's generator with the changes of a rehearsal.
RehearsedGenerator generator_of(const ResolvedJob& plan, const GenerationTimes& times, const RehearsalChange& change) {
  const RolloutPlan& rollouts = plan.rollouts.value();
  const SectionId section = rollouts.section.value();
  RehearsedGenerator generator{section, {}, times};
  generator.shape.replicas = static_cast<std::size_t>(plan.graph.node(section).replicas);
  generator.shape.slots = rollouts.config.slots;
  generator.shape.block_rows = Generation::block_rows;
  generator.shape.held = most_held(rollouts.config);
  const auto faster = change.faster.find(rollouts.name);
  if (faster == change.faster.end()) return generator;
  generator.times.prefill = [times, by = faster->second](std::int64_t rows) { return times.prefill(rows) / by; };
  generator.times.decode = [times, by = faster->second](std::int64_t sequences, std::int64_t rows) {
    return times.decode(sequences, rows) / by;
  };
  return generator;
}

/// Returns a plan's passes with their times, as a run would report them to its planner.
std::vector<MeasuredPass> measured_passes(const ResolvedJob& plan, const StepPlan& step, const JobTimes& times) {
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

/// A job's times with a RehearsalChange.
class ChangedTimes {
 public:
  ChangedTimes(const ResolvedJob& plan, const JobTimes& times, const RehearsalChange& change)
      : plan_(&plan), times_(&times), change_(&change) {
    const std::size_t sections = plan.graph.nodes().size();
    apart_.resize(sections);
    written_.resize(sections * sections);
    std::map<SectionId, ProcessId> first;
    for (const ReplicaPlacement& place : plan.places) {
      processes_[{place.section, place.replica}] = place.process;
      if (first.try_emplace(place.section, place.process).first->second != place.process) {
        apart_[place.section.value()] = true;
      }
    }
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
    const PassCost cost = noisy(times_->pass(batch), batch);
    const auto faster = change_->faster.find(plan_->graph.node(batch.section).section_name());
    if (faster == change_->faster.end()) return cost;
    return {cost.forward / faster->second, cost.backward / faster->second};
  }
  [[nodiscard]] PassCost noisy(PassCost cost, const MicroBatchPlan& batch) const {
    if (change_->noise == 0) return cost;
    const std::uint64_t step = 2 * batch.step.value() + (batch.pass == Pass::train ? 0 : 1);
    Random random(mix64(change_->seed, step), mix64(batch.section.value(), batch.index));
    const auto factor = [&] { return std::exp(change_->noise * (random.normal() - change_->noise / 2)); };
    cost.forward *= factor();
    cost.backward *= factor();
    return cost;
  }
  [[nodiscard]] double action(const LaneKey& lane, StepAction action) const {
    const double ms = times_->action(lane.section, action);
    if (action == StepAction::await_total) return ms + (several_ ? 2 * change_->latency_ms : 0);
    if (!is_exchange(action)) return ms;
    const GraphNode& node = plan_->graph.node(lane.section);
    if (node.replicas == 1) return 0;
    return ms + (apart_[lane.section.value()] ? 2 * change_->latency_ms
                                              : 0);  // parts are sent to their owner, which returns the sums
  }
  [[nodiscard]] TransferTime transfer(const LaneKey& from, const LaneKey& to, std::int64_t rows) const {
    if (!times_->apart && !plan_->transport.force_rma && processes_.at(from) == processes_.at(to)) return {};
    const bool credit = rows == 0;  // a message
    const double ms = credit ? 0 : write_ms(from.section, to.section, rows);
    return {ms + change_->latency_ms, false, ms};
  }

  /// Returns a write's time, from the last result if the number of rows is the same, as it mostly is.
  [[nodiscard]] double write_ms(SectionId from, SectionId to, std::int64_t rows) const {
    Written& last = written_[from.value() * apart_.size() + to.value()];
    if (last.rows != rows) last = {rows, times_->write(from, to, rows)};
    return last.ms;
  }

  struct Written {
    std::int64_t rows = 0;
    double ms = 0;
  };
  const ResolvedJob* plan_;
  const JobTimes* times_;
  const RehearsalChange* change_;
  std::map<LaneKey, ProcessId> processes_;
  std::vector<bool> apart_;               // by section: whether its replicas are in several processes
  mutable std::vector<Written> written_;  // last write, by sending and receiving section
  bool several_ = false;
};

}  // namespace

TimedJob timed_job(const ResolvedJob& plan) {
  TimedJob job{&plan.graph, plan.cost, joins_norms(plan)};
  for (const PlannedSection& section : plan.sections) job.speeds.push_back(section.config.replica_speeds);
  return job;
}

bool shares_cores(const ResolvedJob& plan, std::int64_t cores) {
  JobTimes times;
  times.cores = cores;
  RehearsalOptions options;
  add_devices(plan, times, options);
  std::set<int> used;
  return std::ranges::any_of(options.cores, [&](int core) { return core >= 0 && !used.insert(core).second; });
}

JobTimes traced_job_times(const ResolvedJob& plan, const TracedRun& run, const TracedTimes& times) {
  JobTimes made;
  made.pass = [&plan, &times](const MicroBatchPlan& batch) { return times.pass(timed_job(plan), batch); };
  made.action = [&plan, &times](SectionId section, StepAction action) {
    return times.action(timed_job(plan), section, action);
  };
  made.write = [&plan, &times](SectionId from, SectionId to, std::int64_t rows) {
    return times.write(plan.graph.node(from).name, plan.graph.node(to).name, rows);
  };
  made.hop_ms = run.hop_ms;
  made.sharing = DeviceSharing::measured;
  return made;
}

Result<std::vector<StepPlan>> plans_of(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
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

Result<Rehearsed> rehearse_units(const ResolvedJob& plan, std::size_t units, const UnitMaker& unit_of,
                                 const JobTimes& times, const RehearsalChange& change,
                                 std::optional<std::size_t> last) {
  const ChangedTimes changed(plan, times, change);
  RehearsalOptions options;
  options.graph = &plan.graph;
  options.limits = flow_limits(plan);
  add_devices(plan, times, options);
  options.ahead = scheduling_policy(plan)->synchronous() ? 0 : plan.train.ahead;
  options.joined_norms = joins_norms(plan);
  const bool publishes = times.generation.has_value();
  options.step_ends = [&plan, publishes](const LaneKey& lane) { return step_end_of(plan, lane, publishes); };
  if (publishes) options.generator = generator_of(plan, *times.generation, change);
  options.times = changed.times();
  options.last = last;
  return Rehearsal(std::move(options)).play(units, unit_of);
}

Result<Rehearsed> rehearse(const ResolvedJob& plan, const std::vector<TracedUnit>& given,
                           const std::vector<StepPlan>& plans, const JobTimes& times, const RehearsalChange& change) {
  std::vector<RehearsalUnit> units;
  for (std::size_t at = 0; at < plans.size(); ++at) {
    units.push_back({plans[at], false, given[at].planning_ms});
    if (times.generation) units.back().rollout = given[at].rollout;
    if (!given[at].checkpoint) continue;
    RehearsalUnit& checkpoint = units.emplace_back();
    checkpoint.plan.step = plans[at].step;
    checkpoint.checkpoint = true;
  }
  const auto unit_of = [&units](std::size_t at) { return std::move(units[at]); };
  return rehearse_units(plan, units.size(), unit_of, times, change);
}

std::size_t units_behind(const ResolvedJob& plan) {
  return static_cast<std::size_t>(plan.train.ahead) + 1;
}

Result<SteadyRehearsal> steady_rehearsal(const ResolvedJob& plan, Result<Rehearsed> rehearsed) {
  if (!rehearsed) return rehearsed.error();
  const std::size_t behind = units_behind(plan);
  std::vector<double> ends = rehearsed->unit_ends_ms;
  ends.resize(ends.size() - std::min(ends.size(), behind));
  const std::optional<SteadySteps> time = steady_steps(ends);
  if (time) return SteadyRehearsal{{}, std::move(*rehearsed), *time};
  return Error{ErrorCode::invalid_argument, "a rehearsal needs " + std::to_string(behind + 4) + " steps or more, not " +
                                                std::to_string(rehearsed->unit_ends_ms.size())};
}

Result<SteadyRehearsal> rehearse_steps(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                       const JobTimes& times, const RehearsalChange& change) {
  Result<std::vector<StepPlan>> plans = plans_of(plan, units, &times);
  if (!plans) return plans.error();
  Result<SteadyRehearsal> steady = steady_rehearsal(plan, rehearse(plan, units, *plans, times, change));
  if (steady) steady->plans = std::move(*plans);
  return steady;
}

}  // namespace maestro
