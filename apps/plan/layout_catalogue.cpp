// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/layout_catalogue.hpp"

#include <algorithm>
#include <set>
#include <thread>
#include <tuple>

#include "runtime/core/ordered_workers.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

constexpr std::int64_t most_ranks = 64;  // of a stage
constexpr std::int64_t most_stages = 16;
constexpr std::int64_t most_samples_of_a_pass = 64;

/// Returns whether two stages have equal layers and an equal place (first, last or between), as far as a plan shows it.
bool alike(const ResolvedJob& plan, SectionId one, SectionId other) {
  const auto of = [&](SectionId section) {
    const Stage& stage = plan.sections[section.value()].stage;
    const HeldElements& held = plan.held[section.value()];
    const PassCost cost = plan.cost(section, plan.largest);
    return std::tuple(stage.first(), stage.last(), stage.layers, held.all, held.matrices, held.largest,
                      held.extra_bytes, cost.forward, cost.backward, plan.graph.node(section).max_in_flight);
  };
  return of(one) == of(other);
}

/// Returns whether the ranks of a stage fit a host of the pool without a gap.
bool fits(const SectionLayout& layout, const DescribedPool& pool) {
  const std::int64_t ranks = layout.tensor * layout.context;
  return pool.devices_of_host % ranks == 0 && ranks * layout.pipeline <= pool.devices();
}

/// Returns the work of a stage, with fill_ms as its longest pass.
ClusterLane priced_stage(const ResolvedJob& plan, SectionId stage, PricedTimes& times,
                         const std::vector<EqualBatches>& batches) {
  ClusterLane lane;
  lane.slowest = stage.value();
  double shortest = infinite;
  for (const auto& [batch, count] : batches) {
    const PassCost cost = times.pass(batch);
    const double ms = cost.forward + cost.backward;
    lane.work_ms += ms * static_cast<double>(count);
    lane.batch_ms.insert(lane.batch_ms.end(), static_cast<std::size_t>(count), ms);
    for (const SampleRef& sample : batch.samples) {
      const PassCost of_sample = plan.cost(stage, sample);
      lane.units += (of_sample.forward + of_sample.backward) * static_cast<double>(count);
    }
    lane.longest_ms = std::max(lane.longest_ms, ms);
    shortest = std::min(shortest, ms);
  }
  lane.fill_ms = lane.longest_ms;
  lane.shortest_ms = batches.empty() ? 0 : shortest;
  PassProbe& probe = times.probe(stage);
  if (!batches.empty()) (void)probe.pass(batches.front().first);
  Parameters& parameters = probe.runner().section().parameters();
  const GraphNode& node = plan.graph.node(stage);
  const auto values = static_cast<double>(parameters.elements());
  const bool rounded = plan.sections[stage.value()].config.precision == DType::bf16;
  const double of_element = node.trained() ? 2.0 * static_cast<double>(size_of(parameters.moments_dtype())) : 0;
  const auto stepped = static_cast<double>(node.trained() ? parameters.kept_moments().count : 0);  // a shard with zero
  const auto kept = node.runs_backward() ? node.max_in_flight : 1;
  const double resting =
      static_cast<double>(probe.parameter_bytes()) - of_element * stepped + (rounded ? 2 * values : 0);
  const auto working = static_cast<double>(probe.working_bytes());
  lane.end_ms = times.action(stage, StepAction::add_ranks) + times.action(stage, StepAction::norm);
  lane.optimizer_ms = stepped > 0 ? times.action(stage, StepAction::step) * values / stepped : 0;
  const WireFormats wire = wire_formats(node.gradient_wire, plan.sections[stage.value()].config.zero);
  lane.gradient_bytes = node.trained() ? wire_bytes_per_element(wire) * values : 0;
  lane.state_bytes = of_element * values;
  lane.resting_bytes = resting;
  lane.pass_bytes = working;
  lane.other_bytes = resting + working * static_cast<double>(kept);
  return lane;
}

constexpr double ClusterLane::*step_ends_and_bytes[] = {
    &ClusterLane::end_ms,        &ClusterLane::optimizer_ms, &ClusterLane::gradient_bytes, &ClusterLane::state_bytes,
    &ClusterLane::resting_bytes, &ClusterLane::pass_bytes,   &ClusterLane::other_bytes};

/// Adds a stage to its device, which may have others (chunks).
void add_chunk(ClusterLane& device, const ClusterLane& stage) {
  if (device.batch_ms.empty() && device.other_bytes == 0) {
    device = stage;
    return;
  }
  for (double ClusterLane::*const sum : step_ends_and_bytes) device.*sum += stage.*sum;
  for (double ClusterLane::*const sum :
       {&ClusterLane::work_ms, &ClusterLane::units, &ClusterLane::longest_ms, &ClusterLane::shortest_ms}) {
    device.*sum += stage.*sum;
  }
  device.fill_ms = std::max(device.fill_ms, stage.fill_ms);
  for (std::size_t batch = 0; batch < device.batch_ms.size(); ++batch) device.batch_ms[batch] += stage.batch_ms[batch];
}

/// Adds a device's work to the section's layout.
void add_device(ClusterLane& lane, ClusterLane device) {
  for (double ClusterLane::*const most : step_ends_and_bytes) lane.*most = std::max(lane.*most, device.*most);
  if (lane.batches > 0 && device.work_ms <= lane.work_ms) return;
  lane.work_ms = device.work_ms;
  lane.units = device.units;
  lane.slowest = device.slowest;
  lane.batches = std::ssize(device.batch_ms);
  lane.batch_ms = std::move(device.batch_ms);
  lane.shortest_ms = device.shortest_ms;
  lane.longest_ms = device.longest_ms * static_cast<double>(lane.layout.pipeline);
  lane.fill_ms = device.fill_ms * static_cast<double>(lane.layout.pipeline - 1);
}

/// Sets `shared_work` of a layout's lanes on all pools that it fits.
void relate(std::span<ClusterLane> lanes) {
  double shared_work = 0;
  const bool related = lanes.size() > 1 && std::ranges::all_of(lanes, [&](const ClusterLane& lane) {
                         return lane.slowest == lanes.front().slowest && lane.work_ms > 0;
                       });
  for (std::size_t batch = 0; related && batch < lanes.front().batch_ms.size(); ++batch) {
    double least = infinite;
    for (const ClusterLane& lane : lanes) least = std::min(least, lane.batch_ms[batch] / lane.work_ms);
    shared_work += least;
  }
  for (ClusterLane& lane : lanes) {
    lane.shared_work = shared_work;
    lane.batch_ms = {};
  }
}

ClusterLane priced_lane(const std::string& section, const SectionLayout& layout, std::size_t pool,
                        const ResolvedJob& plan, std::span<const SampleRef> samples, PricedTimes& times) {
  ClusterLane lane;
  lane.layout = layout;
  lane.layout.replicas = 1;
  lane.layout.zero = false;
  lane.pool = pool;
  const std::vector<SectionId> stages = plan.graph.stages_of(section);
  std::vector<ClusterLane> devices(static_cast<std::size_t>(layout.pipeline));
  ClusterLane last;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    if (stage == 0 || !alike(plan, stages[stage - 1], stages[stage])) {
      last = priced_stage(plan, stages[stage], times, equal_batches_of(plan, stages[stage], samples));
    }
    add_chunk(devices[stage % devices.size()], last);
  }
  for (ClusterLane& device : devices) add_device(lane, std::move(device));
  return lane;
}

/// Returns sections with the chosen keys and the work (same_work()) of an earlier section, and that section.
std::map<std::string, std::string> repeated_sections(const ResolvedJob& base, const ChosenKeys& keys,
                                                     std::span<const SampleRef> samples) {
  const std::vector<std::string>& sections = keys.sections();
  std::map<std::string, std::string> as;
  for (auto section = sections.begin(); section != sections.end(); ++section) {
    const auto same = std::find_if(sections.begin(), section, [&](const std::string& before) {
      return !as.contains(before) && keys.of(before) == keys.of(*section) && same_work(base, before, *section, samples);
    });
    if (same != section) as.emplace(*section, *same);
  }
  return as;
}

}  // namespace

LayoutCatalogue::LayoutCatalogue(const DescribedCluster& cluster, const ResolvedJob& base, const ChosenKeys& keys,
                                 double headroom, double hop_ms)
    : cluster_(&cluster), base_(&base), keys_(&keys), headroom_(headroom), hop_ms_(hop_ms) {
  for (const DescribedPool& pool : cluster.pools) prices_.emplace_back(pool);
  passes_.resize(cluster.pools.size());
}

std::optional<std::int64_t> LayoutCatalogue::given_replicas(const std::string& section) const {
  if (keys_->of(section).contains("replicas")) return std::nullopt;
  return base_->graph.node(base_->graph.stages_of(section).front()).replicas;
}

std::vector<bool> LayoutCatalogue::zero_choices(const std::string& section) const {
  if (keys_->of(section).contains("zero")) return {false, true};
  return {base_->sections[base_->graph.stages_of(section).front().value()].config.zero};
}

std::vector<SectionLayout> LayoutCatalogue::possible(const std::string& section) const {
  const std::int64_t replicas = given_replicas(section).value_or(1);
  const bool shards = replicas > 1 && zero_choices(section) == std::vector<bool>{true};
  const auto fits_a_pool = [&](const SectionLayout& layout) {
    return std::ranges::any_of(cluster_->pools, [&](const DescribedPool& pool) { return fits(layout, pool); });
  };
  const std::int64_t most_samples = std::min(most_samples_of_a_pass, base_->train.global_batch);
  const SectionId first = base_->graph.stages_of(section).front();
  std::set<std::int64_t> all_stages{base_->sections[first.value()].config.pipeline};  // given by the job, or 1
  for (std::int64_t stages = 1; stages <= most_stages; stages *= 2) all_stages.insert(stages);
  const std::int64_t chunks = base_->sections[first.value()].config.chunks;
  std::vector<SectionLayout> possible;
  for (std::int64_t tensor = 1; tensor <= most_ranks; tensor *= 2) {
    for (std::int64_t context = 1; tensor * context <= most_ranks; context *= 2) {
      for (const std::int64_t stages : all_stages) {
        for (std::int64_t samples = 1; samples <= most_samples; samples *= 2) {
          const SectionLayout layout{replicas, tensor, context, stages, stages > 1 ? chunks : 1, shards, samples};
          if (fits_a_pool(layout)) possible.push_back(layout);
        }
      }
    }
  }
  return keys_->standing(section, std::move(possible));
}

bool LayoutCatalogue::price(const SectionLayout& layout, const ResolvedJob& plan, std::span<const SampleRef> samples,
                            PricedRun& made) {
  const auto dry = std::make_shared<DrySections>(plan, samples, false, &values_);
  const std::size_t before = made.lanes.size();
  for (std::size_t pool = 0; pool < cluster_->pools.size(); ++pool) {
    if (!fits(layout, cluster_->pools[pool])) continue;
    PricedTimes times(plan, dry, prices_[pool], hop_ms_, made.passes[pool]);
    made.lanes.push_back(priced_lane(made.section, layout, pool, plan, samples, times));
  }
  const std::span added = std::span(made.lanes).subspan(before);
  relate(added);
  return std::ranges::any_of(added, [&](const ClusterLane& lane) {
    const auto members = static_cast<double>(cluster_->devices() / lane.devices());
    return lane.other_bytes + lane.state_bytes / members <= most_bytes(lane.pool);
  });
}

LayoutCatalogue::PricedRun LayoutCatalogue::priced(const LayoutRun& run, const Resolve& resolve, std::mutex& resolving,
                                                   std::span<const SampleRef> samples) {
  PricedRun made{run.section, {}, {}, 0, {}};
  for (const SectionLayout& layout : run.layouts) {
    try {
      const ResolvedJob plan = [&] {
        const std::scoped_lock lock(resolving);
        return resolve(keys_->settings_on(run.section, layout, own_devices));
      }();
      if (!price(layout, plan, samples, made)) break;  // larger micro-batches need no less memory
    } catch (const JobError& refusal) {
      if (made.refused++ == 0) made.first_refusal = refusal.what();
    }
  }
  return made;
}

bool LayoutCatalogue::price_more(const std::string& section, const SectionLayout& layout, const Resolve& resolve,
                                 std::span<const SampleRef> samples) {
  SectionLayout one = layout;
  one.replicas = given_replicas(section).value_or(1);
  one.zero = one.replicas > 1 && layout.zero;
  const auto known = [&](const ClusterLane& lane) {
    return std::tie(lane.layout.tensor, lane.layout.context, lane.layout.pipeline, lane.layout.chunks,
                    lane.layout.micro_batch) ==
           std::tie(one.tensor, one.context, one.pipeline, one.chunks, one.micro_batch);
  };
  std::vector<ClusterLane>& lanes = lanes_.at(section);
  if (std::ranges::any_of(lanes, known)) return true;
  std::mutex alone;
  PricedRun made = priced({section, {one}}, resolve, alone, samples);
  if (made.lanes.empty()) return false;
  add(std::move(made));
  return true;
}

void LayoutCatalogue::add(PricedRun made) {
  if (refused_ == 0) first_refusal_ = made.first_refusal;
  refused_ += made.refused;
  if (made.lanes.empty()) return;
  std::vector<ClusterLane>& lanes = lanes_[made.section];
  lanes.insert(lanes.end(), std::make_move_iterator(made.lanes.begin()), std::make_move_iterator(made.lanes.end()));
  for (auto& [pool, passes] : made.passes) passes_[pool].merge(passes);
}

void LayoutCatalogue::price_all(const Resolve& resolve, std::span<const SampleRef> samples) {
  std::mutex resolving;
  OrderedWorkers<LayoutRun, PricedRun> workers(
      std::max(1U, std::thread::hardware_concurrency()),
      [&](const LayoutRun& run) { return priced(run, resolve, resolving, samples); },
      [this](PricedRun made) { add(std::move(made)); });
  const auto degrees = [](const SectionLayout& of) { return std::tuple(of.tensor, of.context, of.pipeline); };
  const std::map<std::string, std::string> as =
      repeated_sections(*base_, *keys_, samples);  // before others read the corpus
  for (const std::string& section : keys_->sections()) {
    if (lanes_.contains(section) || as.contains(section)) continue;
    const std::vector<SectionLayout> layouts = possible(section);
    for (auto first = layouts.begin(); first != layouts.end();) {
      const auto end =
          std::find_if(first, layouts.end(), [&](const auto& each) { return degrees(each) != degrees(*first); });
      workers.add({section, {first, end}});
      first = end;
    }
  }
  workers.finish();
  for (const auto& [section, before] : as) {
    if (lanes_.contains(before) && !lanes_.contains(section)) lanes_[section] = lanes_.at(before);
  }
  for (const std::string& section : keys_->sections()) {
    if (lanes_.contains(section)) continue;
    throw JobError(section + ": no layout on " + std::to_string(cluster_->devices()) + " devices of " +
                   printable(cluster_->name) + (first_refusal_.empty() ? "" : ": " + first_refusal_));
  }
}

std::size_t LayoutCatalogue::count() const {
  std::size_t sum = 0;
  for (const auto& [section, lanes] : lanes_) sum += lanes.size();
  return sum;
}

}  // namespace maestro
