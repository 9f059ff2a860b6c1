// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/traced_times.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>

#include "runtime/core/quantile.hpp"
#include "runtime/rehearsal/generation_costs.hpp"

namespace maestro {

namespace {

/// Returns the name of an action's slices; empty if it has no separate slices.
std::string_view label_of(StepAction action) {
  switch (action) {
    case StepAction::add_ranks:
      return "add ranks";
    case StepAction::timed_sum:
      return "sum";
    case StepAction::norm:
      return "norm";
    case StepAction::step:
      return "step";
    case StepAction::load_values:
      return "take";
    case StepAction::clear:
      return "clear";
    case StepAction::publish:
      return "publish";
    default:
      return {};
  }
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

PassCost units_of(const TimedJob& job, SectionId section, const std::vector<SampleRef>& samples) {
  PassCost sum;
  for (const SampleRef& sample : samples) {
    const PassCost one = job.cost ? job.cost(section, sample) : PassCost{static_cast<double>(sample.tokens), 0};
    sum.forward += one.forward;
    sum.backward += one.backward;
  }
  return sum;
}

}  // namespace

std::optional<GenerationTimes> generation_times(const TracedGeneration& traced) {
  if (traced.prefills.empty() || traced.decodes.empty() || traced.takes.empty()) return std::nullopt;
  std::map<std::int64_t, std::vector<double>> decodes;  // by sequences
  for (const auto& [sequences, ms] : traced.decodes) decodes[sequences].push_back(ms);
  const auto costs = std::make_shared<GenerationCosts>();
  for (const auto& [sequences, all_ms] : decodes) costs->add_decode(sequences, 1, mean_of(all_ms));
  GenerationTimes times;
  times.prefill = [ms = mean_of(traced.prefills)](std::int64_t) { return ms; };
  times.decode = [costs](std::int64_t sequences, std::int64_t) { return costs->decode(sequences, 1); };
  times.take_ms = mean_of(traced.takes);
  return times;
}

TracedTimes::TracedTimes(const TracedRun& run, TimedJob traced, const std::vector<StepPlan>& plans)
    : run_(&run), traced_(std::move(traced)) {
  for (const StepPlan& plan : plans) {
    for (const MicroBatchPlan& batch : plan.micro_batches) {
      const GraphNode& node = traced_.graph->node(batch.section);
      const TracedPass* const pass = find(node, batch);
      if (pass == nullptr) continue;
      const PassCost units = units_of(traced_, batch.section, batch.samples);
      const PassCost ms = split(batch.section, batch.pass, units, *pass);
      const double speed = traced_.speed_of(batch);  // fits are for the fastest lanes
      if (speed != 1) speeds_[{node.name, batch.step, batch.pass, batch.index}] = speed;
      fits_[node.name].forward.add(units.forward, ms.forward * speed);
      fits_[node.name].backward.add(units.backward, ms.backward * speed);
    }
  }
  for (const TracedWrite& write : run.writes) {
    writes_[{write.from, write.to}].add(static_cast<double>(write.rows), write.ms);
  }
  add_actions();
}

const TracedPass* TracedTimes::find(const GraphNode& node, const MicroBatchPlan& batch) const {
  const auto found = run_->passes.find({node.name, batch.step, batch.pass, batch.index});
  if (found == run_->passes.end() || found->second.rows != batch.rows(node.axis())) return nullptr;
  return &found->second;
}

PassCost TracedTimes::split(SectionId section, Pass kind, const PassCost& units, const TracedPass& traced) const {
  const SectionGraph& graph = *traced_.graph;
  const bool together = kind == Pass::train && graph.node(section).runs_backward() && !graph.splits_passes(section);
  if (!together) return {traced.forward_ms, traced.backward_ms};
  const double all = units.forward + units.backward;
  const double share = all > 0 ? units.forward / all : 1;
  return {traced.forward_ms * share, traced.forward_ms * (1 - share)};
}

const TracedTimes::SectionFit* TracedTimes::fit_of(const GraphNode& node) const {
  const auto own = fits_.find(node.name);
  if (own != fits_.end()) return &own->second;
  for (const SectionId stage : traced_.graph->stages_of(node.section_name())) {
    const auto other = fits_.find(traced_.graph->node(stage).name);
    if (other != fits_.end()) return &other->second;
  }
  return nullptr;
}

PassCost TracedTimes::pass(const TimedJob& job, const MicroBatchPlan& batch) const {
  const GraphNode& node = job.graph->node(batch.section);
  const PassCost units = units_of(job, batch.section, batch.samples);
  const auto before = traced_.graph->find(node.name);
  if (const TracedPass* const pass = before ? find(node, batch) : nullptr; pass != nullptr) {
    const PassCost was = units_of(traced_, *before, batch.samples);  // units on a rank
    if (was.forward == units.forward && was.backward == units.backward) {
      ++sources_.traced;
      const auto slower = speeds_.find({node.name, batch.step, batch.pass, batch.index});
      const double by = (slower == speeds_.end() ? 1 : slower->second) / job.speed_of(batch);
      const PassCost ms = split(*before, batch.pass, units, *pass);
      return {ms.forward * by, ms.backward * by};
    }
  }
  const SectionFit* const fit = fit_of(node);
  if (fit == nullptr) return {};
  ++sources_.estimated;
  const double speed = job.speed_of(batch);
  return {fit->forward.ms(units.forward) / speed,
          batch.pass == Pass::train ? fit->backward.ms(units.backward) / speed : 0};
}

/// Adds the times of actions. Actions with separate slices take the slices' times; an exchange takes the time from the
/// end of the previous action on the last replica to the start of the next action on the first.
void TracedTimes::add_actions() {
  std::map<std::pair<std::string, StepId>, std::vector<const TracedLane*>> lanes;
  std::map<StepId, double> norms_end;
  for (const auto& [key, lane] : run_->lanes) {
    const auto& [section, replica, step] = key;
    lanes[{section, step}].push_back(&lane);
    const auto norm = lane.actions.find("norm");
    if (norm != lane.actions.end()) norms_end[step] = std::max(norms_end[step], norm->second.end_ms);
    for (const StepAction action : {StepAction::add_ranks, StepAction::timed_sum, StepAction::norm, StepAction::step,
                                    StepAction::load_values, StepAction::clear, StepAction::publish}) {
      const auto found = lane.actions.find(std::string(label_of(action)));
      if (found == lane.actions.end()) continue;
      actions_[{section, action}].push_back(found->second.end_ms - found->second.start_ms);
    }
  }
  for (const auto& [key, replicas] : lanes) add_exchange(key.first, replicas, norms_end[key.second]);
}

void TracedTimes::add_exchange(const std::string& section, const std::vector<const TracedLane*>& lanes,
                               double norms_end_ms) {
  // From the last end to the first start; nothing if a replica lacks either.
  const auto between = [&](auto end_of, std::string_view begins) -> std::optional<double> {
    double end = 0;
    std::optional<double> begin;
    for (const TracedLane* lane : lanes) {
      const auto next = lane->actions.find(std::string(begins));
      if (next == lane->actions.end()) return std::nullopt;
      begin = std::min(begin.value_or(next->second.start_ms), next->second.start_ms);
      end = std::max(end, end_of(*lane));
    }
    return std::max(0.0, begin.value_or(end) - end);
  };
  const auto end_of = [](const std::string& label) {
    return [label](const TracedLane& lane) {
      const auto found = lane.actions.find(label);
      return found == lane.actions.end() ? lane.last_pass_ms : found->second.end_ms;
    };
  };
  const auto add = [&](StepAction action, std::optional<double> ms) {
    if (ms) actions_[{section, action}].push_back(*ms);
  };
  const bool timed = lanes.front()->actions.contains("sum");
  const auto sum = between(end_of("add ranks"), timed ? "sum" : "norm");
  add(StepAction::sum, sum);
  add(StepAction::sum_to_shards, sum);
  add(StepAction::exchange_tie, 0.0);  // part of the time before the norm
  add(StepAction::gather_values, between(end_of("step"), "take"));
  const auto joined = [norms_end_ms](const TracedLane&) { return norms_end_ms; };
  add(StepAction::await_total, traced_.joined_norms ? between(joined, "step") : between(end_of("norm"), "step"));
}

double TracedTimes::action(const TimedJob& job, SectionId section, StepAction action) const {
  const GraphNode& node = job.graph->node(section);
  const auto own = actions_.find({node.name, action});
  if (own != actions_.end()) return quantile_of(own->second, 0.5);
  for (const SectionId stage : traced_.graph->stages_of(node.section_name())) {
    const auto other = actions_.find({traced_.graph->node(stage).name, action});
    if (other != actions_.end()) return quantile_of(other->second, 0.5);
  }
  return 0;
}

double TracedTimes::write(const std::string& from, const std::string& to, std::int64_t rows) const {
  const auto found = writes_.find({from, to});
  return found == writes_.end() ? 0 : found->second.ms(static_cast<double>(rows));
}

}  // namespace maestro
