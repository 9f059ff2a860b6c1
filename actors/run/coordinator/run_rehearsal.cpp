// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/run_rehearsal.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "actors/job/emulated_step_end.hpp"
#include "actors/job/job_rehearsal.hpp"
#include "actors/messages/wait_text.hpp"
#include "actors/run/coordinator/measured_steps.hpp"
#include "runtime/core/quantile.hpp"

namespace maestro {

namespace {

constexpr double most_planning_ms = 5000;

double median_of(std::vector<double> values) {
  return values.empty() ? 0 : quantile_of(std::move(values), 0.5);
}

/// Times of a run's steps, for their rehearsal.
class MeasuredTimes {
 public:
  MeasuredTimes(const ResolvedJob& plan, const std::deque<MeasuredStep>& steps) : plan_(&plan), all_(&steps) {
    for (const MeasuredStep& step : steps) {
      steps_[step.step] = &step;
      for (const auto& [lane, report] : step.lanes) {
        for (const auto& [channel, times] : report.transfers) {
          transfers_[{plan.graph.sender(channel), plan.graph.receiver(channel)}] += times;
        }
      }
    }
    for (std::uint32_t at = 0; at < plan.graph.nodes().size(); ++at) add_step_end(SectionId(at));
  }

  [[nodiscard]] JobTimes times() {
    JobTimes made;
    made.pass = [this](const MicroBatchPlan& batch) { return pass(batch); };
    made.action = [this](SectionId section, StepAction action) { return this->action(section, action); };
    made.write = [this](SectionId from, SectionId to, std::int64_t) {
      const auto found = transfers_.find({from, to});
      return found == transfers_.end() ? 0 : found->second.sum_ms / static_cast<double>(found->second.pieces);
    };
    made.hop_ms = usual_hop_ms;
    made.sharing = DeviceSharing::measured;
    return made;
  }
  /// Returns a step that the run had cut into different micro-batches.
  [[nodiscard]] std::optional<StepId> differs() const { return differs_; }

 private:
  struct StepEndTimes {
    double sum = 0;  // timed sum, on emulated devices
    double reduction = 0;
    double norm = 0;
    double rest = 0;
    double parameters = 0;
  };

  PassCost pass(const MicroBatchPlan& batch) {
    if (plan_->graph.node(batch.section).role == Role::source) return {};
    const std::vector<PassCost>& passes = steps_.at(batch.step)->passes[batch.section.value()];
    if (batch.index < passes.size()) return passes[batch.index];
    differs_ = batch.step;
    return {};
  }

  [[nodiscard]] double action(SectionId section, StepAction action) const {
    const StepEndTimes& times = step_ends_.at(section);
    switch (action) {
      case StepAction::sum:
      case StepAction::sum_to_shards:
        return times.reduction;
      case StepAction::timed_sum:
        return times.sum;
      case StepAction::await_total:
        return times.norm;
      case StepAction::step:
        return times.rest;
      case StepAction::gather_values:
        return times.parameters;
      default:
        return 0;
    }
  }

  void add_step_end(SectionId section) {
    const GraphNode& node = plan_->graph.node(section);
    std::vector<double> at_ends;
    for (const MeasuredStep& step : *all_) {
      for (const auto& [lane, report] : step.lanes) {
        if (lane.first == section) at_ends.push_back(report.times.step_end_ms);
      }
    }
    StepEndTimes& times = step_ends_[section];
    if (!node.trained() || at_ends.empty()) return;
    times.rest = quantile_of(std::move(at_ends), 0.25);
    times.sum = std::min(times.rest, emulated_step_end(*plan_, section).sum_ms);
    times.rest -= times.sum;
    const auto own = [section](SectionId other) { return other == section; };
    times.reduction = shortest_wait(WaitKind::reduction, own);
    times.parameters = shortest_wait(WaitKind::parameters, own);
    times.norm = shortest_wait(WaitKind::norm, [&](SectionId other) {
      const GraphNode& joined = plan_->graph.node(other);
      return joined.trained() && (joins_norms(*plan_) || joined.section_name() == node.section_name());
    });
  }

  /// Returns the wait of the lane that waits least, among the joined sections; median over the steps.
  template <class Joins>
  [[nodiscard]] double shortest_wait(WaitKind kind, const Joins& joins) const {
    std::vector<double> waits;
    for (const MeasuredStep& step : *all_) {
      std::optional<double> shortest;
      for (const auto& [lane, report] : step.lanes) {
        if (!joins(lane.first)) continue;
        const auto found = report.times.wait_ms.find(name_of(kind));
        const double waited = found == report.times.wait_ms.end() ? 0 : found->second;
        shortest = std::min(shortest.value_or(waited), waited);
      }
      waits.push_back(shortest.value_or(0));
    }
    return median_of(std::move(waits));
  }

  const ResolvedJob* plan_;
  const std::deque<MeasuredStep>* all_;
  std::map<StepId, const MeasuredStep*> steps_;
  std::map<std::pair<SectionId, SectionId>, TransferTimes> transfers_;
  std::map<SectionId, StepEndTimes> step_ends_;
  std::optional<StepId> differs_;
};

/// Adds the measured shares of the compared steps, beginning at index `from`.
void add_measured(RunRehearsal& rehearsal, const ResolvedJob& plan, const std::deque<MeasuredStep>& steps,
                  std::size_t from) {
  std::map<std::string, double> whole;
  for (std::size_t at = from; at < from + rehearsal.steps; ++at) {
    for (const auto& [lane, report] : steps[at].lanes) {
      const GraphNode& node = plan.graph.node(lane.first);
      if (!node.plays_in_steps()) continue;
      RehearsedUse& use = rehearsal.sections[node.name];
      use.measured_passes += report.times.busy_ms;
      use.measured_step_ends += report.times.step_end_ms;
      whole[node.name] += whole_ms(report.times);
    }
  }
  for (const auto& [name, ms] : whole) {
    if (ms <= 0) continue;
    rehearsal.sections[name].measured_passes /= ms;
    rehearsal.sections[name].measured_step_ends /= ms;
  }
}

}  // namespace

Result<RunRehearsal> rehearse_run(const ResolvedJob& plan, const std::deque<MeasuredStep>& measured) {
  std::vector<TracedUnit> units;
  double planning_ms = 0;
  for (const MeasuredStep& step : measured) {
    units.push_back({step.step, Pass::train, step.samples, step.planning_ms});
    planning_ms += step.planning_ms;
  }
  if (planning_ms > most_planning_ms) {
    return Error{ErrorCode::unavailable, "planning its last " + std::to_string(units.size()) +
                                             " steps anew would take " + std::to_string(std::lround(planning_ms)) +
                                             " ms"};
  }
  MeasuredTimes times(plan, measured);
  const Result<SteadyRehearsal> steady = rehearse_steps(plan, units, times.times());
  if (!steady) return steady.error();
  if (times.differs()) {
    return Error{ErrorCode::unavailable,
                 "step " + std::to_string(times.differs()->value()) + " had different micro-batches in the run"};
  }
  RunRehearsal rehearsal;
  rehearsal.steps = steady->time.steps;
  const std::vector<double>& ends = steady->rehearsed.unit_ends_ms;
  const std::size_t ahead = static_cast<std::size_t>(plan.train.ahead) + 1;  // steps after the compared ones
  const std::size_t from = measured.size() - ahead - rehearsal.steps;
  std::vector<double> rehearsed_ms;
  std::vector<double> measured_ms;
  for (std::size_t at = from; at < from + rehearsal.steps; ++at) {
    rehearsed_ms.push_back(ends[at] - ends[at - 1]);
    measured_ms.push_back(measured[at].ms);
  }
  rehearsal.step_ms = median_of(std::move(rehearsed_ms));
  rehearsal.measured_step_ms = median_of(std::move(measured_ms));
  for (const auto& [name, shares] : section_shares(steady->rehearsed, plan.graph, steady->time)) {
    rehearsal.sections[name] = {shares.passes, 0, shares.step_ends, 0};
  }
  add_measured(rehearsal, plan, measured, from);
  return rehearsal;
}

}  // namespace maestro
