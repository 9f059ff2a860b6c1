// SPDX-License-Identifier: Apache-2.0
#include "actors/layouts/cluster_planner.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "actors/layouts/job_probes.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

constexpr std::size_t rehearsed_steps = 5;  // beside those that are ahead
constexpr int most_rounds = 24;             // of more replicas for the sections that a kept section waits for
constexpr std::int64_t most_stages = 16;
constexpr std::int64_t most_samples_of_a_pass = 64;
constexpr double infinity = std::numeric_limits<double>::infinity();

double waits_of(const SectionShares& shares) {
  double sum = 0;
  for (const auto& [reason, share] : shares.waits) sum += share;
  return sum;
}

/// The section that waits of this kind name: "input from vision".
std::string section_in(const std::string& reason) {
  const auto from = reason.rfind("from ");
  return from == std::string::npos ? std::string() : reason.substr(from + 5);
}

}  // namespace

ClusterPlanner::ClusterPlanner(Resolve resolve, DescribedCluster cluster, ClusterPlannerOptions options)
    : resolve_(std::move(resolve)),
      cluster_(std::move(cluster)),
      prices_(cluster_),
      options_(std::move(options)),
      base_(resolve_({})),
      keys_(base_, options_.varied),
      units_(first_steps(base_, rehearsed_steps + static_cast<std::size_t>(base_.train.ahead) + 1)) {
  if (options_.kept.empty()) return;
  const std::vector<std::string>& sections = keys_.sections();
  if (std::ranges::find(sections, options_.kept) == sections.end()) {
    const auto nearest = nearest_name(options_.kept, sections);
    throw JobError("--extra " + printable(options_.kept) + ": the job has no such section" +
                   (nearest ? "; did you mean " + *nearest + "?" : ""));
  }
  if (keys_.of(options_.kept).contains("replicas")) {
    throw JobError("--extra " + options_.kept + ": the critical section keeps its devices, and the job gives no " +
                   options_.kept + ".replicas");
  }
}

std::vector<std::string> ClusterPlanner::emulated(const std::string& section, const SectionLayout& layout) const {
  std::vector<std::string> settings = keys_.settings(section, layout, "");
  std::erase_if(settings, [&](const std::string& each) { return each.starts_with(section + ".devices="); });
  settings.push_back(section + ".devices=[\"emulated\"]");
  return settings;
}

ClusterPlanner::Lane ClusterPlanner::priced(const std::string& section, const SectionLayout& layout,
                                            const JobPlan& plan) {
  PricedTimes times(plan, units_.front().samples, prices_, options_.hop_ms, passes_);
  Lane lane;
  lane.layout = layout;
  lane.layout.replicas = 1;
  lane.layout.zero = false;
  double slowest = -1;
  for (const SectionId stage : plan.graph.stages_of(section)) {
    const std::vector<MicroBatchPlan> batches = batches_of(plan, stage, units_.front().samples);
    double work = 0;
    double longest = 0;
    double shortest = infinity;
    for (const MicroBatchPlan& batch : batches) {
      const PassCost cost = times.pass(batch);
      work += cost.forward + cost.backward;
      longest = std::max(longest, cost.forward + cost.backward);
      shortest = std::min(shortest, cost.forward + cost.backward);
    }
    const bool trained = plan.graph.node(stage).trained();
    const double end = times.action(stage, StepAction::add_ranks) + times.action(stage, StepAction::norm);
    const double optimizer = times.action(stage, StepAction::step);
    if (work > slowest) {
      slowest = work;
      lane.work_ms = work;
      lane.batches = std::ssize(batches);
      lane.shortest_ms = batches.empty() ? 0 : shortest;
      lane.longest_ms = longest * static_cast<double>(layout.pipeline);
      lane.fill_ms = longest * static_cast<double>(layout.pipeline - 1);
    }
    PassProbe& probe = times.probe(stage);
    if (!batches.empty()) (void)probe.pass(batches.front());
    Parameters& parameters = probe.runner().section().parameters();
    const auto values = static_cast<double>(parameters.elements());
    const bool rounded = plan.sections[stage.value()].config.precision == DType::bf16;
    const double of_element = trained ? 2.0 * static_cast<double>(size_of(parameters.moments_dtype())) : 0;
    const auto stepped = static_cast<double>(trained ? parameters.kept_moments().count : 0);  // a shard with zero
    const auto kept = plan.graph.node(stage).runs_backward() ? plan.graph.node(stage).max_in_flight : 1;
    const double bytes = static_cast<double>(probe.parameter_bytes()) - of_element * stepped +
                         (rounded ? 2 * values : 0) +
                         static_cast<double>(probe.working_bytes()) * static_cast<double>(kept);
    lane.end_ms = std::max(lane.end_ms, end);
    lane.optimizer_ms = std::max(lane.optimizer_ms, stepped > 0 ? optimizer * values / stepped : 0);
    lane.gradient_bytes = std::max(lane.gradient_bytes, trained ? sizeof(float) * values : 0);
    lane.state_bytes = std::max(lane.state_bytes, of_element * values);
    lane.other_bytes = std::max(lane.other_bytes, bytes);
  }
  return lane;
}

void ClusterPlanner::price(const std::string& section) {
  std::vector<SectionLayout> possible;
  for (std::int64_t tensor = 1; tensor <= cluster_.devices_of_host; tensor *= 2) {
    for (std::int64_t context = 1; tensor * context <= cluster_.devices_of_host; context *= 2) {
      if (cluster_.devices_of_host % (tensor * context) != 0) continue;  // so that hosts can be filled
      for (std::int64_t stages = 1; stages <= most_stages; stages *= 2) {
        for (std::int64_t samples = 1; samples <= std::min(most_samples_of_a_pass, base_.train.global_batch);
             samples *= 2) {
          if (tensor * context * stages > cluster_.devices()) continue;
          possible.push_back({1, tensor, context, stages, false, samples});
        }
      }
    }
  }
  const auto replicas = base_.graph.node(base_.graph.stages_of(section).front()).replicas;
  const bool given = !keys_.of(section).contains("replicas");
  const bool shards = given && replicas > 1 && zero_choices(section) == std::vector<bool>{true};
  for (SectionLayout& layout : possible) {
    layout.replicas = given ? replicas : 1;
    layout.zero = shards;
  }
  for (const SectionLayout& layout : keys_.standing(section, std::move(possible))) {
    try {
      lanes_[section].push_back(priced(section, layout, resolve_(emulated(section, layout))));
    } catch (const JobError& refusal) {
      if (refused_++ == 0) first_refusal_ = refusal.what();
    }
  }
  if (!lanes_[section].empty()) return;
  throw JobError(section + ": no layout on " + std::to_string(cluster_.devices()) + " devices of " +
                 printable(cluster_.name) + (first_refusal_.empty() ? "" : ": " + first_refusal_));
}

std::int64_t ClusterPlanner::most_replicas(const Lane& lane) const {
  return std::min(cluster_.devices() / lane.devices(), lane.batches);  // none is without work
}

std::optional<ClusterLayout> ClusterPlanner::on(const Lane& lane, std::int64_t replicas, bool zero) const {
  const auto members = static_cast<double>(replicas);
  const bool shards = zero && replicas > 1;
  ClusterLayout on;
  on.layout = lane.layout;
  on.layout.replicas = replicas;
  on.layout.zero = shards;
  on.bytes = lane.other_bytes + lane.state_bytes / (shards ? members : 1);
  if (on.bytes > options_.headroom * cluster_.memory_bytes) return std::nullopt;
  const double exchange = 2 * prices_.exchange_ms(lane.gradient_bytes, replicas);
  const double end = lane.end_ms + exchange + lane.optimizer_ms / (shards ? members : 1);
  const std::int64_t rounds = (lane.batches + replicas - 1) / replicas;  // of the replica with most micro-batches
  const double passes = std::max(lane.work_ms / members, static_cast<double>(rounds) * lane.shortest_ms);
  on.bound_ms = std::max(passes + lane.fill_ms, lane.longest_ms) + end;
  return on;
}

std::vector<bool> ClusterPlanner::zero_choices(const std::string& section) const {
  if (keys_.of(section).contains("zero")) return {false, true};
  return {base_.sections[base_.graph.stages_of(section).front().value()].config.zero};
}

std::optional<ClusterLayout> ClusterPlanner::fewest(const std::string& section, double most_ms) const {
  std::optional<ClusterLayout> best;
  const bool given = !keys_.of(section).contains("replicas");
  const std::int64_t fixed = base_.graph.node(base_.graph.stages_of(section).front()).replicas;
  const auto better = [&](const ClusterLayout& on) {
    if (!best) return true;
    const auto devices = on.layout.devices() - best->layout.devices();
    return devices != 0 ? devices < 0 : on.bound_ms < best->bound_ms;
  };
  for (const Lane& lane : lanes_.at(section)) {
    for (const bool zero : zero_choices(section)) {
      const std::int64_t most = most_replicas(lane);
      std::int64_t low = given ? fixed : 1;
      std::int64_t high = given ? fixed : most;
      if (low > most) continue;
      const auto fits = [&](std::int64_t replicas) {
        const auto layout = on(lane, replicas, zero);
        return layout && layout->bound_ms <= most_ms;
      };
      if (!fits(high)) continue;  // more replicas are faster, but for their exchange
      while (low < high) {
        const std::int64_t middle = (low + high) / 2;
        fits(middle) ? high = middle : low = middle + 1;
      }
      const auto found = on(lane, low, zero);
      if (found && better(*found)) best = found;
    }
  }
  return best;
}

std::optional<ClusterPlanner::Choice> ClusterPlanner::within(double most_ms) const {
  Choice choice;
  std::int64_t devices = 0;
  for (const std::string& section : keys_.sections()) {
    const auto layout = fewest(section, section == options_.kept ? infinity : most_ms);
    if (!layout) return std::nullopt;
    devices += layout->layout.devices();
    choice[section] = *layout;
  }
  return devices <= cluster_.devices() ? std::optional(choice) : std::nullopt;
}

ClusterPlanner::Choice ClusterPlanner::by_bisection(double& least_ms) const {
  double high = 1;
  while (high < 1e12 && !within(high)) high *= 2;
  if (!within(high)) {
    throw JobError("the " + std::to_string(cluster_.devices()) + " devices of " + printable(cluster_.name) +
                   " are too few, or their memory of " +
                   std::to_string(std::llround(cluster_.memory_bytes / (1 << 30))) +
                   " GiB is too small, for sections with devices of their own");
  }
  double low = 0;
  for (int round = 0; round < 60; ++round) {
    const double middle = (low + high) / 2;
    within(middle) ? high = middle : low = middle;
  }
  least_ms = high;
  return *within(high);
}

ClusterPlanner::Played ClusterPlanner::play(const Choice& choice, const std::string& alone) {
  std::vector<std::string> settings;
  for (const auto& [section, on] : choice) {
    const auto more = emulated(section, on.layout);
    settings.insert(settings.end(), more.begin(), more.end());
  }
  const JobPlan plan = resolve_(settings);
  PricedTimes priced(plan, units_.front().samples, prices_, options_.hop_ms, passes_);
  JobTimes times = priced.times();
  times.apart = true;
  RehearsalChange change;
  for (const auto& [section, on] : choice) {
    if (!alone.empty() && section != alone) change.faster[section] = infinity;
  }
  const SteadyRehearsal steady = rehearse_steps(plan, units_, times, change).value_or_throw();
  ++rehearsed_;
  return {steady.time.period_ms(), section_shares(steady.rehearsed, plan.graph, steady.time)};
}

std::string ClusterPlanner::most_wanted(const Choice& choice, const Played& played) const {
  std::map<std::string, double> wanted;
  for (const auto& [name, shares] : played.shares) {
    const std::string section = name.substr(0, name.find(".stage"));
    if (section == options_.kept) {
      for (const auto& [reason, share] : shares.waits) wanted[section_in(reason)] += share;
    } else {
      wanted[section] += 1e-3 * (1 - waits_of(shares));  // where the waits name none, the busiest
    }
  }
  std::string most;
  for (const auto& [section, on] : choice) {
    if (section == options_.kept || !keys_.of(section).contains("replicas")) continue;
    if (most.empty() || wanted[section] > wanted[most]) most = section;
  }
  return most;
}

std::optional<ClusterPlanner::Choice> ClusterPlanner::grown(const Choice& choice, const std::string& section) const {
  std::int64_t devices = 0;
  for (const auto& [name, on] : choice) devices += on.layout.devices();
  const SectionLayout& layout = choice.at(section).layout;
  SectionLayout one = layout;
  one.replicas = 1;
  one.zero = false;
  const auto lane = std::ranges::find(lanes_.at(section), one, &Lane::layout);
  const std::int64_t more = std::max<std::int64_t>(1, layout.replicas / 16);
  if (devices + more * lane->devices() > cluster_.devices()) return std::nullopt;
  if (layout.replicas + more > most_replicas(*lane)) return std::nullopt;
  Choice larger = choice;
  const auto on_more = on(*lane, layout.replicas + more, layout.zero);
  if (!on_more) return std::nullopt;
  larger[section] = *on_more;
  return larger;
}

void ClusterPlanner::grow_until_hidden(Choice& choice, ClusterChoice& chosen) {
  const double alone = play(choice, options_.kept).step_ms;
  for (int round = 0; round < most_rounds; ++round) {
    const Played played = play(choice, "");
    chosen.step_ms = played.step_ms;
    chosen.shares = played.shares;
    chosen.stall = std::max(0.0, 1 - alone / played.step_ms);
    if (chosen.stall <= options_.stall || round + 1 == most_rounds) return;
    const std::string most = most_wanted(choice, played);
    const auto larger = most.empty() ? std::nullopt : grown(choice, most);
    if (!larger) return;
    choice = *larger;
  }
}

std::vector<std::string> ClusterPlanner::placed(const Choice& choice) const {
  std::vector<std::string> settings;
  std::vector<std::string> sections = keys_.sections();
  const auto ranks_of = [&](const std::string& section) {
    return choice.at(section).layout.tensor * choice.at(section).layout.context;
  };
  std::ranges::stable_sort(sections, std::greater(), ranks_of);  // then no host is left with a gap
  std::int64_t next = 0;                                         // device of the cluster
  for (const std::string& section : sections) {
    const SectionLayout& layout = choice.at(section).layout;
    const std::int64_t ranks = ranks_of(section);
    std::vector<int> devices;
    std::string processes;
    for (std::int64_t stage = 0; stage < layout.replicas * layout.pipeline; ++stage) {
      const std::int64_t left = cluster_.devices_of_host - next % cluster_.devices_of_host;
      if (left < ranks) next += left;  // the ranks of a stage are on one host
      processes += (processes.empty() ? "" : ", ") + std::to_string(next / cluster_.devices_of_host);
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        devices.push_back(static_cast<int>(next++ % cluster_.devices_of_host));
      }
    }
    const auto more = keys_.settings(section, layout, devices_text("cuda", devices));
    settings.insert(settings.end(), more.begin(), more.end());
    if (keys_.of(section).contains("devices")) settings.push_back(section + ".processes=[" + processes + "]");
  }
  return settings;
}

ClusterChoice ClusterPlanner::choose() {
  ClusterChoice chosen;
  for (const std::string& section : keys_.sections()) price(section);
  Choice choice;
  if (options_.kept.empty()) {
    choice = by_bisection(chosen.least_bound_ms);
  } else {
    const auto kept = fewest(options_.kept, infinity);
    if (!kept) throw JobError(options_.kept + ": its layout needs more memory than a device of the cluster has");
    chosen.least_bound_ms = kept->bound_ms;
    const auto found = within(kept->bound_ms / (1 - options_.stall));
    choice = found ? *found : by_bisection(chosen.least_bound_ms);
  }
  chosen.critical = options_.kept;
  if (options_.kept.empty()) {
    const Played played = play(choice, "");
    chosen.step_ms = played.step_ms;
    chosen.shares = played.shares;
    chosen.critical =
        std::ranges::max_element(choice, {}, [](const auto& entry) { return entry.second.bound_ms; })->first;
    chosen.stall = std::max(0.0, 1 - play(choice, chosen.critical).step_ms / played.step_ms);
  } else {
    grow_until_hidden(choice, chosen);
  }
  for (const auto& [section, on] : choice) {
    chosen.bound_ms = std::max(chosen.bound_ms, on.bound_ms);
    chosen.devices += on.layout.devices();
  }
  for (const auto& [section, lanes] : lanes_) chosen.priced += lanes.size();
  chosen.sections = choice;
  chosen.settings = placed(choice);
  chosen.refused = refused_;
  chosen.first_refusal = first_refusal_;
  chosen.rehearsed = rehearsed_;
  return chosen;
}

}  // namespace maestro
