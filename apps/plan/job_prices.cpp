// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/job_prices.hpp"

#include <algorithm>
#include <set>

#include "apps/plan/generator_prices.hpp"
#include "apps/plan/layout_search.hpp"
#include "apps/plan/section_profiler.hpp"

namespace maestro {

namespace {

/// Returns whether two micro-batches make the same calls, as far as lengths decide.
bool same_lengths(const MicroBatchPlan& a, const MicroBatchPlan& b) {
  return std::ranges::equal(a.samples, b.samples,
                            [](const SampleRef& left, const SampleRef& right) { return left.same_size(right); });
}

/// Returns whether a job keeps several cores, or GPUs, busy, with `generates` while samples are made, else while
/// sections train. `cores`: SearchedDevices.
bool uses_several(const ResolvedJob& plan, int cores, bool generates) {
  const bool meanwhile = plan.rollouts && plan.rollouts->config.staleness > 0;  // sections work while samples are made
  std::set<int> used;
  for (const ReplicaPlacement& place : plan.places) {
    const GraphNode& node = plan.graph.node(place.section);
    const bool counts = node.generates() ? generates || meanwhile : node.plays_in_steps() && (!generates || meanwhile);
    if (!counts) continue;
    for (const DeviceId& device : place.devices) used.insert(SearchedDevices{0, cores}.core_of(device.index));
  }
  return used.size() > 1;
}

}  // namespace

std::vector<MicroBatchPlan> measured_of(const std::vector<MicroBatchPlan>& batches) {
  const MicroBatchPlan& other = batches[batches.size() / 2];
  if (same_lengths(batches.front(), other)) return {batches.front()};
  return {batches.front(), other};
}

std::vector<double> JobPrices::work_ms(const ResolvedJob& plan, const std::string& section, std::int64_t replicas) {
  const std::shared_ptr<DrySections> dry = dry_sections(plan);
  PricedTimes alone(plan, dry, prices_->alone, hop_ms_, alone_);
  PricedTimes busy(plan, dry, prices_->busy, hop_ms_, busy_);
  std::vector<double> stages;
  for (const SectionId stage : plan.graph.stages_of(section)) {
    const std::vector<MicroBatchPlan> batches = this->batches(plan, stage);
    const auto work = [&](PricedTimes& times) {
      double sum = 0;
      for (const MicroBatchPlan& batch : batches) {
        const PassCost cost = times.pass(batch);
        sum += cost.forward + cost.backward;
      }
      sum /= static_cast<double>(replicas);
      for (const StepAction action : {StepAction::add_ranks, StepAction::norm, StepAction::step}) {
        sum += times.action(stage, action);
      }
      return sum;
    };
    stages.push_back(std::min(work(alone), work(busy)));  // measured times scatter
  }
  return stages;
}

bool JobPrices::has(const ResolvedJob& plan, const MicroBatchPlan& batch, bool on_shares) {
  const ObservedPasses passes = dry_sections(plan)->probe({batch.section, batch.replica}).pass(batch);
  const auto known = [&](const ObservedCall& observed) {
    return on_shares ? prices_->parts.front().has(observed.call)
                     : prices_->alone.has(observed.call) && prices_->busy.has(observed.call);
  };
  return std::ranges::all_of(passes.forward, known) && std::ranges::all_of(passes.backward, known);
}

void JobPrices::measure_generation(const ResolvedJob& plan, SectionProfiler& profiler) {
  profiler.add_generation(plan, *prices_);
}

bool JobPrices::has_generation(const ResolvedJob& plan) const {
  const GeneratorPrices generator(plan);
  return generator.measured(prices_->alone) && generator.measured(prices_->busy);
}

void JobPrices::measure(const ResolvedJob& plan, const std::vector<MicroBatchPlan>& batches, bool on_shares,
                        SectionProfiler& profiler) {
  profiler.add(plan, batches, *prices_);
  if (on_shares) profiler.add_shares(plan, batches, *prices_);
}

bool JobPrices::measure_shares(const ResolvedJob& plan, const std::string& section, SectionProfiler* profiler,
                               const Progress& progress) {
  for (const SectionId stage : plan.graph.stages_of(section)) {
    const std::vector<MicroBatchPlan> batches = this->batches(plan, stage);
    if (batches.empty() || has(plan, batches.front(), true)) continue;
    if (profiler == nullptr) return false;
    progress(plan.graph.node(stage).name + ": micro-batches of " + std::to_string(batches.front().samples.size()) +
             " on shares of a GPU");
    profiler->add_shares(plan, measured_of(batches), *prices_);
  }
  return true;
}

PlannedTimes::PlannedTimes(JobPrices& prices, const ResolvedJob& plan)
    : prices_(&prices),
      plan_(&plan),
      dry_(prices.dry_sections(plan)),
      whole_(plan, dry_, uses_several(plan, prices.cores_, false) ? prices.prices_->busy : prices.prices_->alone,
             prices.hop_ms_, uses_several(plan, prices.cores_, false) ? prices.busy_ : prices.alone_) {
  for (std::size_t part = 0; part < measured_shares.size(); ++part) {
    parts_.try_emplace(measured_shares[part], plan, dry_, prices.prices_->parts[part], prices.hop_ms_,
                       prices.parts_[part]);
  }
}

PricedTimes& PlannedTimes::of(SectionId section) {
  const auto found = parts_.find(plan_->sections[section.value()].config.share);
  return found == parts_.end() ? whole_ : found->second;
}

PlannedTimes::Work PlannedTimes::work_of(SectionId section) {
  if (!prices_->least_prices_) prices_->least_prices_.emplace(prices_->prices_->alone);
  PricedTimes least_times(*plan_, dry_, *prices_->least_prices_, prices_->hop_ms_, prices_->least_);
  Work work;
  for (const MicroBatchPlan& batch : batches_of(*plan_, section, prices_->samples_)) {
    const PassCost least = least_times.pass(batch);
    const PassCost priced = of(section).pass(batch);
    work.least_ms += least.forward + least.backward;
    work.ms += priced.forward + priced.backward;
  }
  return work;
}

JobTimes PlannedTimes::times() {
  JobTimes made = whole_.times();
  made.cores = prices_->cores_;
  if (prices_->on_gpus_) made.sharing = DeviceSharing::streams;
  made.pass = [this](const MicroBatchPlan& batch) { return of(batch.section).pass(batch); };
  if (prices_->on_gpus_) {
    made.demand = [this](SectionId section) {
      const Work alone = work_of(section);
      return alone.ms > 0 ? std::min(1.0, alone.least_ms / alone.ms / shared_rate) : 1;
    };
  }
  made.action = [this](SectionId section, StepAction action) { return of(section).action(section, action); };
  if (generates(*plan_)) add_generation(made);
  return made;
}

void PlannedTimes::add_generation(JobTimes& times) const {
  const GeneratorPrices generator(*plan_);
  const MachinePrices& prices = *prices_->prices_;
  const CallPrices& own = uses_several(*plan_, prices_->cores_, true) ? prices.busy : prices.alone;
  times.generation = generator.times(own);
  times.action = [others = std::move(times.action), publish_ms = generator.publish_ms(own)](SectionId section,
                                                                                            StepAction action) {
    return action == StepAction::publish ? publish_ms : others(section, action);
  };
}

PriceSources PlannedTimes::sources() const {
  PriceSources sum = whole_.sources();
  for (const auto& [share, times] : parts_) sum += times.sources();
  return sum;
}

}  // namespace maestro
