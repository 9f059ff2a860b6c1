// SPDX-License-Identifier: Apache-2.0
#include "actors/layouts/cluster_lanes.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "actors/layouts/job_probes.hpp"

namespace maestro {

namespace {

constexpr std::int64_t most_ranks = 64;  // of a stage
constexpr std::int64_t most_stages = 16;
constexpr std::int64_t most_samples_of_a_pass = 64;
constexpr std::int64_t least_multiples = 32;  // numbers of replicas to choose from
constexpr double nearly = 1.001;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Whether two stages between the first and the last have equal layers, by all that a plan has of them.
bool alike(const JobPlan& plan, SectionId one, SectionId other) {
  const auto of = [&](SectionId section) {
    const Stage& stage = plan.sections[section.value()].stage;
    const HeldElements& held = plan.held[section.value()];
    const PassCost cost = plan.cost(section, plan.largest);
    return std::tuple(stage.first(), stage.last(), stage.layers, held.all, held.matrices, held.largest,
                      held.extra_bytes, cost.forward, cost.backward, plan.graph.node(section).max_in_flight);
  };
  return of(one) == of(other);
}

}  // namespace

bool same_layouts(const ClusterLayouts& one, const ClusterLayouts& other) {
  const auto of = [](const ClusterLayout& on) { return std::tie(on.layout, on.pool, on.more, on.group); };
  return std::ranges::equal(
      one, other, [&](const auto& a, const auto& b) { return a.first == b.first && of(a.second) == of(b.second); });
}

void ClusterLayout::keep_in_flight(std::int64_t batches) {
  in_flight = batches;
  bytes = resting_bytes + pass_bytes * static_cast<double>(batches);
}

double busiest_ms(const ClusterLayouts& layouts, const std::string& section, double longer) {
  std::map<std::size_t, double> work_ms;  // by group
  double most = 0;
  for (const auto& [name, on] : layouts) {
    most = std::max(most, work_ms[on.group] += on.work_ms * (name == section ? longer : 1));
  }
  return most;
}

ClusterLanes::ClusterLanes(const DescribedCluster& cluster, const JobPlan& base, const ChosenKeys& keys,
                           double headroom, double hop_ms)
    : cluster_(&cluster), base_(&base), keys_(&keys), headroom_(headroom), hop_ms_(hop_ms) {
  for (const DescribedPool& pool : cluster.pools) prices_.emplace_back(pool);
  passes_.resize(cluster.pools.size());
}

void ClusterLanes::set_parts(std::int64_t parts) {
  parts_ = parts;
  sharers_.clear();
}

std::int64_t ClusterLanes::multiple_of(const Lane& lane) const {
  const std::int64_t most = std::min(cluster_->pools[lane.pool].devices() / lane.devices(), lane.batches);
  std::int64_t of = std::max<std::int64_t>(1, std::min(parts_, most / least_multiples));
  while (parts_ % of != 0) --of;
  return of;
}

std::int64_t ClusterLanes::given_replicas(const std::string& section) const {
  return base_->graph.node(base_->graph.stages_of(section).front()).replicas;
}

std::vector<bool> ClusterLanes::zero_choices(const std::string& section) const {
  if (keys_->of(section).contains("zero")) return {false, true};
  return {base_->sections[base_->graph.stages_of(section).front().value()].config.zero};
}

std::vector<SectionLayout> ClusterLanes::possible(const std::string& section) const {
  const std::int64_t replicas = given_replicas(section);
  const bool given = !keys_->of(section).contains("replicas");
  const bool shards = given && replicas > 1 && zero_choices(section) == std::vector<bool>{true};
  const auto fits_a_pool = [&](const SectionLayout& layout) {
    return std::ranges::any_of(cluster_->pools, [&](const DescribedPool& pool) { return fits(layout, pool); });
  };
  const std::int64_t most_samples = std::min(most_samples_of_a_pass, base_->train.global_batch);
  const SectionId first = base_->graph.stages_of(section).front();
  std::set<std::int64_t> all_stages{base_->sections[first.value()].config.pipeline};  // given by the job, or 1
  for (std::int64_t stages = 1; stages <= most_stages; stages *= 2) all_stages.insert(stages);
  std::vector<SectionLayout> possible;
  for (std::int64_t tensor = 1; tensor <= most_ranks; tensor *= 2) {
    for (std::int64_t context = 1; tensor * context <= most_ranks; context *= 2) {
      for (const std::int64_t stages : all_stages) {
        for (std::int64_t samples = 1; samples <= most_samples; samples *= 2) {
          const SectionLayout layout{given ? replicas : 1, tensor, context, stages, shards, samples};
          if (fits_a_pool(layout)) possible.push_back(layout);
        }
      }
    }
  }
  return keys_->standing(section, std::move(possible));
}

bool ClusterLanes::fits(const SectionLayout& layout, const DescribedPool& pool) {
  const std::int64_t ranks = layout.tensor * layout.context;
  return pool.devices_of_host % ranks == 0 && ranks * layout.pipeline <= pool.devices();
}

bool ClusterLanes::price(const std::string& section, const SectionLayout& layout, const JobPlan& plan,
                         std::span<const SampleRef> samples, Priced& priced) {
  const auto dry = std::make_shared<DrySections>(plan, samples, false, &values_);
  const std::size_t before = priced.lanes_.size();
  for (std::size_t pool = 0; pool < cluster_->pools.size(); ++pool) {
    if (!fits(layout, cluster_->pools[pool])) continue;
    priced.lanes_.push_back(this->priced(section, layout, pool, plan, samples, dry, priced.passes_[pool]));
  }
  const std::span added = std::span(priced.lanes_).subspan(before);
  relate(added);
  return std::ranges::any_of(added, [&](const Lane& lane) {
    const auto members = static_cast<double>(cluster_->devices() / lane.devices());
    return lane.other_bytes + lane.state_bytes / members <= headroom_ * cluster_->pools[lane.pool].memory_bytes;
  });
}

void ClusterLanes::add(const std::string& section, Priced priced) {
  if (priced.lanes_.empty()) return;
  sharers_.clear();
  std::vector<Lane>& lanes = lanes_[section];
  lanes.insert(lanes.end(), std::make_move_iterator(priced.lanes_.begin()),
               std::make_move_iterator(priced.lanes_.end()));
  for (auto& [pool, passes] : priced.passes_) passes_[pool].merge(passes);
}

void ClusterLanes::add_as(const std::string& section, const std::string& other) {
  sharers_.clear();
  lanes_[section] = lanes_.at(other);
}

std::size_t ClusterLanes::count() const {
  std::size_t sum = 0;
  for (const auto& [section, lanes] : lanes_) sum += lanes.size();
  return sum;
}

void ClusterLanes::add_stage(Lane& lane, const JobPlan& plan, SectionId stage, PricedTimes& times,
                             const std::vector<EqualBatches>& batches) {
  double work = 0;
  double units = 0;
  double longest = 0;
  double shortest = infinity;
  std::vector<double> batch_ms;
  for (const auto& [batch, count] : batches) {
    const PassCost cost = times.pass(batch);
    const double ms = cost.forward + cost.backward;
    work += ms * static_cast<double>(count);
    batch_ms.insert(batch_ms.end(), static_cast<std::size_t>(count), ms);
    for (const SampleRef& sample : batch.samples) {
      const PassCost of_sample = plan.cost(stage, sample);
      units += (of_sample.forward + of_sample.backward) * static_cast<double>(count);
    }
    longest = std::max(longest, ms);
    shortest = std::min(shortest, ms);
  }
  const double end = times.action(stage, StepAction::add_ranks) + times.action(stage, StepAction::norm);
  const double optimizer = times.action(stage, StepAction::step);
  if (lane.batches == 0 || work > lane.work_ms) {
    lane.work_ms = work;
    lane.units = units;
    lane.slowest = stage.value();
    lane.batches = std::ssize(batch_ms);
    lane.batch_ms = std::move(batch_ms);
    lane.shortest_ms = batches.empty() ? 0 : shortest;
    lane.longest_ms = longest * static_cast<double>(lane.layout.pipeline);
    lane.fill_ms = longest * static_cast<double>(lane.layout.pipeline - 1);
  }
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
  lane.end_ms = std::max(lane.end_ms, end);
  lane.optimizer_ms = std::max(lane.optimizer_ms, stepped > 0 ? optimizer * values / stepped : 0);
  lane.gradient_bytes = std::max(lane.gradient_bytes, node.trained() ? sizeof(float) * values : 0);
  lane.state_bytes = std::max(lane.state_bytes, of_element * values);
  lane.resting_bytes = std::max(lane.resting_bytes, resting);
  lane.pass_bytes = std::max(lane.pass_bytes, working);
  lane.other_bytes = std::max(lane.other_bytes, resting + working * static_cast<double>(kept));
}

ClusterLanes::Lane ClusterLanes::priced(const std::string& section, const SectionLayout& layout, std::size_t pool,
                                        const JobPlan& plan, std::span<const SampleRef> samples,
                                        const std::shared_ptr<DrySections>& dry, PricedPasses& passes) const {
  PricedTimes times(plan, dry, prices_[pool], hop_ms_, passes);
  Lane lane;
  lane.layout = layout;
  lane.layout.replicas = 1;
  lane.layout.zero = false;
  lane.pool = pool;
  std::optional<SectionId> before;
  for (const SectionId stage : plan.graph.stages_of(section)) {
    const bool same = before && alike(plan, *before, stage);
    before = stage;
    if (same) continue;
    add_stage(lane, plan, stage, times, equal_batches_of(plan, stage, samples));
  }
  return lane;
}

std::optional<ClusterLayout> ClusterLanes::on(const Lane& lane, std::int64_t replicas, bool zero) const {
  const auto members = static_cast<double>(replicas);
  const bool shards = zero && replicas > 1;
  ClusterLayout on;
  on.layout = lane.layout;
  on.layout.replicas = replicas;
  on.layout.zero = shards;
  on.pool = lane.pool;
  const double state = lane.state_bytes / (shards ? members : 1);
  on.bytes = lane.other_bytes + state;
  on.resting_bytes = lane.resting_bytes + state;
  on.pass_bytes = lane.pass_bytes;
  if (on.bytes > headroom_ * cluster_->pools[lane.pool].memory_bytes) return std::nullopt;
  const double exchange = 2 * prices_[lane.pool].exchange_ms(lane.gradient_bytes, replicas);
  const double end = lane.end_ms + exchange + lane.optimizer_ms / (shards ? members : 1);
  const std::int64_t rounds = (lane.batches + replicas - 1) / replicas;  // of the replica with most micro-batches
  const double passes = std::max(lane.work_ms / members, static_cast<double>(rounds) * lane.shortest_ms);
  on.rate = lane.work_ms > 0 ? lane.units / lane.work_ms : 0;
  on.work_ms = lane.work_ms / members + lane.end_ms + lane.optimizer_ms / (shards ? members : 1);
  on.bound_ms = std::max(passes + lane.fill_ms, lane.longest_ms) + end;
  return on;
}

std::optional<ClusterLayout> ClusterLanes::fewest(const std::string& section, std::size_t pool, double most_ms,
                                                  std::int64_t most_devices) const {
  std::optional<ClusterLayout> best;
  const bool given = !keys_->of(section).contains("replicas");
  const auto better = [&](const ClusterLayout& on) {
    if (!best) return true;
    const auto devices = on.layout.devices() - best->layout.devices();
    return devices != 0 ? devices < 0 : on.bound_ms < best->bound_ms;
  };
  for (const Lane& lane : lanes_.at(section)) {
    if (lane.pool != pool) continue;
    const std::int64_t of = given ? given_replicas(section) : multiple_of(lane);
    const std::int64_t most = std::min(most_devices / lane.devices(), lane.batches) / of;  // no replica is without work
    for (const bool zero : zero_choices(section)) {
      std::int64_t low = 1;
      std::int64_t high = given ? low : most;
      if (low > most) continue;
      const auto fits = [&](std::int64_t multiple) {
        const auto layout = on(lane, multiple * of, zero);
        return layout && layout->bound_ms <= most_ms;
      };
      if (!fits(high)) continue;  // more replicas are faster, but for their exchange
      while (low < high) {
        const std::int64_t middle = (low + high) / 2;
        fits(middle) ? high = middle : low = middle + 1;
      }
      const auto found = on(lane, low * of, zero);
      if (found && better(*found)) best = found;
    }
  }
  return best;
}

const ClusterLanes::Lane* ClusterLanes::lane_of(const std::string& section, const ClusterLayout& on) const {
  SectionLayout one = on.layout;
  one.replicas = 1;
  one.zero = false;
  const std::vector<Lane>& lanes = lanes_.at(section);
  const auto same = [&](const Lane& lane) { return lane.pool == on.pool && lane.layout == one; };
  const auto found = std::ranges::find_if(lanes, same);
  return found == lanes.end() ? nullptr : &*found;
}

std::optional<ClusterLayout> ClusterLanes::with_micro_batch(const std::string& section, const ClusterLayout& on,
                                                            std::int64_t samples) const {
  ClusterLayout other = on;
  other.layout.micro_batch = samples;
  const Lane* const lane = lane_of(section, other);
  if (lane == nullptr || lane->batches < on.layout.replicas) return std::nullopt;
  auto made = this->on(*lane, on.layout.replicas, on.layout.zero);
  if (made && on.in_flight > 0) made->keep_in_flight(on.in_flight);
  if (made) made->group = on.group;
  return made;
}

std::optional<ClusterLayout> ClusterLanes::grown(const std::string& section, const ClusterLayout& on,
                                                 std::int64_t more_devices) const {
  const Lane* const lane = lane_of(section, on);
  const std::int64_t replicas = on.layout.replicas;
  std::int64_t more = std::max<std::int64_t>(1, replicas / 16);
  const std::int64_t rounds = (lane->batches + replicas - 1) / replicas;
  const bool alike = lane->longest_ms <= lane->shortest_ms * static_cast<double>(on.layout.pipeline) * nearly;
  if (alike && rounds > 1) more = std::max(more, (lane->batches + rounds - 2) / (rounds - 1) - replicas);
  if (const std::int64_t of = multiple_of(*lane); replicas % of == 0) more = (more + of - 1) / of * of;
  if (more * lane->devices() > more_devices || on.layout.replicas + more > lane->batches) return std::nullopt;
  auto grown = this->on(*lane, on.layout.replicas + more, on.layout.zero);
  if (grown && on.in_flight > 0) grown->keep_in_flight(on.in_flight);
  return grown;
}

}  // namespace maestro
