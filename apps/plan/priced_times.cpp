// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/priced_times.hpp"

#include <algorithm>

#include "actors/job/job_probes.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_kept = 64;  // passes that a DrySections keeps: each has hundreds of calls

/// Returns whether passes of two samples make equal calls.
bool alike(const SampleRef& one, const SampleRef& other) {
  return one.tokens == other.tokens && one.patches == other.patches && one.visual == other.visual &&
         one.other_tokens == other.other_tokens && one.other_patches == other.other_patches &&
         one.other_visual == other.other_visual && one.answers == other.answers && one.frames == other.frames &&
         one.heard == other.heard && one.clips == other.clips && one.source == other.source;
}

/// Returns a pass's key. In a search that changes only layouts, passes with equal keys make equal calls. Runs of equal
/// samples are counted, so that keys of large micro-batches are short.
std::string key_of(const GraphNode& node, const MicroBatchPlan& batch) {
  std::string key = node.name + " " + std::to_string(node.stages) + " " + std::to_string(node.layout.tensor) + " " +
                    std::to_string(node.layout_of(batch.replica).context) + " " + std::to_string(node.layout.expert) +
                    (batch.pass == Pass::train ? " train" : " evaluate");
  for (std::size_t at = 0; at < batch.samples.size();) {
    const SampleRef& sample = batch.samples[at];
    std::size_t end = at + 1;
    while (end < batch.samples.size() && alike(batch.samples[end], sample)) ++end;
    key += " " + std::to_string(end - at) + "x" + std::to_string(sample.tokens) + "/" + std::to_string(sample.patches) +
           "/" + std::to_string(sample.visual);
    for (const Axis axis :
         {Axis::other_tokens, Axis::other_patches, Axis::other_visual, Axis::answers, Axis::frames, Axis::heard}) {
      if (sample.rows(axis) > 0) key += "+" + std::string(name_of(axis)) + std::to_string(sample.rows(axis));
    }
    if (sample.source > 0) key += "@" + std::to_string(sample.source);
    at = end;
  }
  return key;
}

}  // namespace

double write_bytes(const ResolvedJob& plan, SectionId from, SectionId to, std::int64_t rows) {
  double bytes = 0;
  for (const GraphEdge& edge : plan.graph.edges()) {
    if ((edge.from == from && edge.to == to) || (edge.from == to && edge.to == from)) {
      bytes = std::max(bytes, static_cast<double>(rows) * static_cast<double>(edge.row_bytes()));
    }
  }
  return bytes;
}

PassProbe& DrySections::probe(const LaneKey& lane) {
  const SectionId section = lane.section;
  auto& found = probes_[{section, plan_->graph.node(section).layout_of(lane.replica).context}];
  if (found == nullptr) {
    ProbedSection probed =
        values_ == nullptr ? probed_section(*plan_, section) : probed_section(*plan_, section, *values_);
    probed.replica = lane.replica;
    ProbeSite dry;
    dry.own_memory = own_memory_;
    found = std::make_unique<PassProbe>(std::move(probed), LayoutRank(0), dry);
  }
  return *found;
}

ObservedPasses DrySections::pass(const std::string& key, const MicroBatchPlan& batch) {
  if (const auto known = passes_.find(key); known != passes_.end()) return known->second;
  ObservedPasses observed = probe({batch.section, batch.replica}).pass(batch);
  if (passes_.size() < most_kept) passes_.emplace(key, observed);
  return observed;
}

const DrySections::StepEnd& DrySections::observed_end(SectionId section) {
  const auto [found, fresh] = ends_.try_emplace(section);
  if (!fresh) return found->second;
  // The first pass after a step packs the weights; here that time belongs to the step.
  MicroBatchPlan batch;
  batch.section = section;
  batch.step = StepId(1);
  const Axis axis = plan_->graph.node(section).axis();
  batch.samples = {*std::ranges::max_element(samples_, {}, [&](const SampleRef& sample) { return sample.rows(axis); })};
  PassProbe& probed = probe({section, batch.replica});
  (void)probed.pass(batch);
  found->second.calls = probed.step_end();
  found->second.packs = probed.pass(batch).packs;
  return found->second;
}

const ObservedStepEnd& DrySections::step_end(SectionId section) {
  return observed_end(section).calls;
}

const std::vector<ObservedCall>& DrySections::packs(SectionId section) {
  return observed_end(section).packs;
}

PricedTimes::PricedTimes(const ResolvedJob& plan, std::shared_ptr<DrySections> sections, const CallPricing& prices,
                         double hop_ms, PricedPasses& known)
    : plan_(&plan), sections_(std::move(sections)), prices_(&prices), hop_ms_(hop_ms), known_(&known) {}

double PricedTimes::price(const std::vector<ObservedCall>& calls, PriceSources& sources) const {
  double sum = static_cast<double>(calls.size()) * prices_->glue_ms();
  for (const ObservedCall& observed : calls) sum += prices_->ms(observed.call, sources);
  return std::max(0.0, sum);
}

PassCost PricedTimes::pass(const MicroBatchPlan& batch) {
  const GraphNode& node = plan_->graph.node(batch.section);
  if (!node.plays_in_steps()) return {};
  LastPass& last = last_[{batch.section, node.layout_of(batch.replica).context}];
  if (last.priced == nullptr || last.pass != batch.pass || !std::ranges::equal(last.samples, batch.samples, alike)) {
    last = {batch.pass, batch.samples, &priced_pass(node, batch)};
  }
  sources_ += last.priced->sources;
  return last.priced->ms;
}

const PricedPass& PricedTimes::priced_pass(const GraphNode& node, const MicroBatchPlan& batch) {
  const std::string key = key_of(node, batch);
  const auto [found, fresh] = known_->try_emplace(key);
  if (fresh) {
    const ObservedPasses passes = sections_->pass(key, batch);
    PricedPass& priced = found->second;
    priced.ms = {price(passes.forward, priced.sources), price(passes.backward, priced.sources)};
  }
  return found->second;
}

double PricedTimes::moved(double elements, PriceSources& sources) {
  const OperatorCall call{"add_into", DType::f32, {static_cast<std::int64_t>(elements)}, elements, 12 * elements};
  return prices_->ms(call, sources);
}

double PricedTimes::action(SectionId section, StepAction action) {
  if (!plan_->graph.node(section).trained()) return 0;
  const auto [found, fresh] = actions_.try_emplace({section, action});
  if (fresh) found->second.first = priced_action(section, action, found->second.second);
  sources_ += found->second.second;
  return found->second.first;
}

double PricedTimes::priced_action(SectionId section, StepAction action, PriceSources& sources) {
  const GraphNode& node = plan_->graph.node(section);
  const ObservedStepEnd& end = sections_->step_end(section);
  const auto replicas = static_cast<double>(node.replicas);
  const auto gradients = static_cast<double>(probe(section).runner().gradients().size());
  const double shard = gradients / replicas;
  // Every replica adds up its shard of all replicas, and copies the others' sums (ReductionRound).
  const std::int64_t devices = plan_->sections[section.value()].config.pipeline * node.layout.ranks();
  const auto sent = [&](GradientWire wire) {
    return prices_->exchange_ms(wire_bytes_per_element(wire) * gradients, node.replicas, devices) + 2 * hop_ms_;
  };
  const WireFormats formats = wire_formats(node.gradient_wire, action != StepAction::sum);
  const double encoded = formats.parts == GradientWire::f32 ? 0 : moved(gradients - shard, sources);
  const double summed = encoded + (replicas - 1) * moved(shard, sources) + sent(formats.parts);
  const double copied = moved(gradients - shard, sources) + sent(formats.sums);
  switch (action) {
    case StepAction::add_ranks:
      return price(end.add_ranks, sources);
    case StepAction::sum:
      return summed + copied;
    case StepAction::sum_to_shards:
      return summed;
    case StepAction::gather_values:
      return copied;
    case StepAction::load_values:
      return moved(gradients - shard, sources);
    case StepAction::norm:
      return price(end.norm, sources);
    case StepAction::await_total:
      return 2 * hop_ms_;
    case StepAction::step:
      return price(end.step, sources) + price(sections_->packs(section), sources);
    default:
      return 0;  // actions of checkpoints, and the answer
  }
}

JobTimes PricedTimes::times() {
  JobTimes made;
  made.pass = [this](const MicroBatchPlan& batch) { return pass(batch); };
  made.action = [this](SectionId section, StepAction action) { return this->action(section, action); };
  made.write = [this](SectionId from, SectionId to, std::int64_t rows) {
    return hop_ms_ + prices_->write_ms(write_bytes(*plan_, from, to, rows));
  };
  made.hop_ms = hop_ms_;
  return made;
}

double busiest_ms(const ResolvedJob& plan, const std::vector<const StepPlan*>& steps, const JobTimes& times) {
  std::map<std::pair<DeviceId, SectionId>, double> work;  // by core for CPUs, by share for GPUs
  const auto add = [&](const ReplicaPlacement& place, double ms) {
    const bool part = plan.sections[place.section.value()].config.share < 1;
    for (DeviceId device : place.devices) {
      if (times.cores > 0 && device.kind == DeviceId::Kind::cpu) device.index %= static_cast<int>(times.cores);
      work[{device, part ? place.section : SectionId()}] += ms;
    }
  };
  std::map<LaneKey, const ReplicaPlacement*> places;
  for (const ReplicaPlacement& place : plan.places) places[{place.section, place.replica}] = &place;
  for (const StepPlan* const step : steps) {
    for (const MicroBatchPlan& batch : step->micro_batches) {
      if (plan.graph.node(batch.section).role == Role::source) continue;
      const PassCost cost = times.pass(batch);
      add(*places.at({batch.section, batch.replica}), cost.forward + cost.backward);
    }
  }
  for (auto& [device, ms] : work) ms /= static_cast<double>(steps.size());
  for (const ReplicaPlacement& place : plan.places) {
    for (const StepAction action : {StepAction::add_ranks, StepAction::norm, StepAction::step}) {
      if (plan.graph.node(place.section).trained()) add(place, times.action(place.section, action));
    }
  }
  double most = 0;
  for (const auto& [device, ms] : work) most = std::max(most, ms);
  return most;
}

}  // namespace maestro
