// SPDX-License-Identifier: Apache-2.0
#include "actors/layouts/cluster_planner.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "actors/layouts/cluster_places.hpp"
#include "actors/layouts/job_probes.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/ordered_workers.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

constexpr std::size_t rehearsed_steps = 5;          // beside those that are ahead
constexpr int most_rounds = 24;                     // of more replicas for the sections that the critical one waits for
constexpr std::size_t most_divided = 5;             // sections of which every division is tried
constexpr std::size_t most_of_all_variants = 2048;  // samples of a step; with more a rehearsal takes seconds
constexpr double unlimited = std::numeric_limits<double>::infinity();

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
      options_(std::move(options)),
      base_(resolve_({})),
      keys_(base_, options_.varied),
      units_(first_steps(base_, rehearsed_steps + static_cast<std::size_t>(base_.train.ahead) + 1)),
      equal_samples_(equal_samples(units_)),
      lanes_(cluster_, base_, keys_, options_.headroom, options_.hop_ms) {
  check_options();
}

void ClusterPlanner::check_options() const {
  if ((options_.cheapest || options_.most_per_hour < unlimited) && !cluster_.priced()) {
    throw JobError(printable(cluster_.name) + ": a plan by its cost needs price_per_hour of all hosts");
  }
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

std::vector<std::string> ClusterPlanner::emulated(const std::string& section, const SectionLayout& layout,
                                                  const std::string& devices) const {
  std::vector<std::string> settings = keys_.settings(section, layout, "");
  std::erase_if(settings, [&](const std::string& each) { return each.starts_with(section + ".devices="); });
  settings.push_back(section + ".devices=" + devices);
  return settings;
}

ClusterPlanner::PricedRun ClusterPlanner::priced(const LayoutRun& run, std::mutex& resolving) {
  PricedRun made{run.section, {}, 0, {}};
  for (const SectionLayout& layout : run.layouts) {
    try {
      const JobPlan plan = [&] {
        const std::scoped_lock lock(resolving);
        return resolve_(emulated(run.section, layout, own_devices));
      }();
      // Larger micro-batches need no less memory.
      if (!lanes_.price(run.section, layout, plan, units_.front().samples, made.priced)) break;
    } catch (const JobError& refusal) {
      if (made.refused++ == 0) made.first_refusal = refusal.what();
    }
  }
  return made;
}

std::map<std::string, std::string> ClusterPlanner::repeated_sections() const {
  const std::vector<std::string>& sections = keys_.sections();
  std::map<std::string, std::string> as;
  for (auto section = sections.begin(); section != sections.end(); ++section) {
    const auto same = std::find_if(sections.begin(), section, [&](const std::string& before) {
      return !as.contains(before) && keys_.of(before) == keys_.of(*section) &&
             same_work(base_, before, *section, units_.front().samples);
    });
    if (same != section) as.emplace(*section, *same);
  }
  return as;
}

void ClusterPlanner::price_all() {
  std::mutex resolving;
  const auto add = [this](PricedRun made) {
    lanes_.add(made.section, std::move(made.priced));
    if (refused_ == 0) first_refusal_ = made.first_refusal;
    refused_ += made.refused;
  };
  OrderedWorkers<LayoutRun, PricedRun> workers(
      std::max(1U, std::thread::hardware_concurrency()), [&](const LayoutRun& run) { return priced(run, resolving); },
      add);
  const auto degrees = [](const SectionLayout& of) { return std::tuple(of.tensor, of.context, of.pipeline); };
  const std::map<std::string, std::string> as = repeated_sections();  // before others read the corpus
  for (const std::string& section : keys_.sections()) {
    if (lanes_.has(section) || as.contains(section)) continue;
    const std::vector<SectionLayout> layouts = lanes_.possible(section);
    for (auto first = layouts.begin(); first != layouts.end();) {
      const auto end =
          std::find_if(first, layouts.end(), [&](const auto& each) { return degrees(each) != degrees(*first); });
      workers.add({section, {first, end}});
      first = end;
    }
  }
  workers.finish();
  for (const auto& [section, before] : as) {
    if (lanes_.has(before) && !lanes_.has(section)) lanes_.add_as(section, before);
  }
  for (const std::string& section : keys_.sections()) {
    if (lanes_.has(section)) continue;
    throw JobError(section + ": no layout on " + std::to_string(cluster_.devices()) + " devices of " +
                   printable(cluster_.name) + (first_refusal_.empty() ? "" : ": " + first_refusal_));
  }
}

std::vector<std::int64_t> ClusterPlanner::all_devices() const {
  std::vector<std::int64_t> devices;
  for (const DescribedPool& pool : cluster_.pools) devices.push_back(pool.devices());
  return devices;
}

std::optional<ClusterLayout> ClusterPlanner::kept_layout(const std::vector<std::int64_t>& devices) const {
  std::optional<ClusterLayout> best;
  for (std::size_t pool = 0; pool < devices.size(); ++pool) {
    const auto layout = lanes_.fewest(options_.kept, pool, unlimited, devices[pool]);
    if (layout && (!best || layout->bound_ms < best->bound_ms)) best = layout;
  }
  return best;
}

std::vector<ClusterPlanner::Division> ClusterPlanner::divisions() const {
  const std::vector<std::string>& sections = keys_.sections();
  Division apart;
  for (const std::string& section : sections) apart.groups.push_back({section});
  if (!options_.kept.empty() || sections.size() < 2) return {apart};
  if (sections.size() > most_divided) return {apart, {{sections}}};
  std::vector<Division> divisions;
  std::vector<std::vector<std::string>> made;
  const std::function<void(std::size_t)> extend = [&](std::size_t at) {
    if (at == sections.size()) {
      divisions.push_back({made});
      return;
    }
    made.push_back({sections[at]});
    extend(at + 1);
    made.pop_back();
    for (std::size_t group = 0; group < made.size(); ++group) {
      made[group].push_back(sections[at]);
      extend(at + 1);
      made[group].pop_back();
    }
  };
  extend(0);
  return divisions;
}

std::optional<SharedDevices> ClusterPlanner::shared_by(const Division& division, std::size_t group, std::size_t pool,
                                                       double most_ms, const std::vector<std::int64_t>& devices) const {
  const std::vector<std::string>& sections = division.groups[group];
  if (sections.front() != options_.kept) {
    return lanes_.fewest(sections, pool, most_ms, devices[pool], division.sharing);
  }
  const auto kept = kept_layout(devices);
  if (!kept || kept->pool != pool) return std::nullopt;
  return SharedDevices{{*kept}, kept->layout.devices(), kept->bound_ms, kept->bound_ms};
}

Allocator ClusterPlanner::allocator(const Division& division, const std::vector<std::int64_t>& devices) const {
  std::vector<DevicePool> pools;
  for (std::size_t pool = 0; pool < devices.size(); ++pool) {
    pools.push_back({devices[pool], cluster_.pools[pool].devices_of_host, cluster_.pools[pool].price_per_hour});
  }
  const auto fewest = [this, division, devices](std::size_t group, std::size_t pool,
                                                double most_ms) -> std::optional<Allotment> {
    const auto shared = shared_by(division, group, pool, most_ms, devices);
    if (!shared) return std::nullopt;
    return Allotment{pool, shared->devices, shared->expected_ms};
  };
  return {std::move(pools), division.groups.size(), fewest, options_.most_per_hour};
}

ClusterLayouts ClusterPlanner::layouts_of(const Division& division, const Allocation& allocation,
                                          const std::vector<std::int64_t>& devices) const {
  ClusterLayouts layouts;
  for (std::size_t group = 0; group < division.groups.size(); ++group) {
    const SharedDevices shared =
        shared_by(division, group, allocation.sections[group].pool, allocation.most_ms, devices).value();
    for (std::size_t at = 0; at < division.groups[group].size(); ++at) {
      ClusterLayout& on = layouts[division.groups[group][at]];
      on = shared.layouts[at];
      on.group = group;
    }
  }
  return layouts;
}

std::vector<ClusterPlanner::Division> ClusterPlanner::variants_of(const Division& division) const {
  if (division.groups.size() == keys_.sections().size()) return {division};
  const bool large = !equal_samples_ && units_.front().samples.size() > most_of_all_variants;
  std::vector<Division> variants;
  for (const double exchanges : {0.3, 1.0}) {
    for (const bool staged : {true, false}) variants.push_back({division.groups, {staged, exchanges}});
    if (large) break;
  }
  return variants;
}

std::optional<Allocation> ClusterPlanner::allocated(const Division& division,
                                                    const std::vector<std::int64_t>& devices) const {
  const Allocator allocator = this->allocator(division, devices);
  if (!options_.cheapest) return allocator.fastest();
  const std::vector<Allocation> front = allocator.front();
  return front.empty() ? std::nullopt : std::optional(front.back());
}

std::vector<ClusterPlanner::Candidate> ClusterPlanner::candidates(const std::vector<std::int64_t>& devices) const {
  std::vector<Candidate> found;
  for (const Division& division : divisions()) {
    const Allocator allocator = this->allocator(division, devices);
    const std::optional<Allocation> fastest = allocator.fastest();
    if (!fastest) continue;
    Candidate candidate{division, *fastest, fastest->bound_ms, {}};
    if (cluster_.priced() && options_.kept.empty()) candidate.front = allocator.front();
    if (options_.cheapest) candidate.allocation = candidate.front.back();
    found.push_back(std::move(candidate));
  }
  return found;
}

std::optional<ClusterPlanner::Candidate> ClusterPlanner::hidden_by_kept() const {
  const Division apart = divisions().front();
  const auto kept = kept_layout(all_devices());
  if (!kept) return std::nullopt;
  const auto hidden = allocator(apart, all_devices()).within(kept->bound_ms / (1 - options_.stall));
  if (!hidden) return std::nullopt;
  return Candidate{apart, *hidden, kept->bound_ms, {}};
}

std::string ClusterPlanner::most_wanted(const ClusterLayouts& layouts, const PlayedLayouts& played,
                                        const std::string& critical) const {
  std::map<std::string, double> wanted;
  for (const auto& [name, shares] : played.shares) {
    const std::string section = name.substr(0, name.find(".stage"));
    if (section == critical) {
      for (const auto& [reason, share] : shares.waits) wanted[section_in(reason)] += share;
    } else {
      wanted[section] += 1e-3 * (1 - waits_of(shares));  // where the waits name none, the busiest
    }
  }
  const ClusterPlaces places(cluster_, layouts);
  std::string most;
  for (const auto& [section, on] : layouts) {
    if (section == critical || places.shared(section) || !on.more.empty() || !keys_.of(section).contains("replicas"))
      continue;
    if (most.empty() || wanted[section] > wanted[most]) most = section;
  }
  return most;
}

std::optional<ClusterLayouts> ClusterPlanner::grown(const ClusterLayouts& layouts, const std::string& section) const {
  if (section.empty()) return std::nullopt;
  const std::size_t pool = layouts.at(section).pool;
  const std::int64_t left = all_devices()[pool] - ClusterPlaces(cluster_, layouts).devices()[pool];
  auto larger = lanes_.grown(section, layouts.at(section), left);
  if (!larger) return std::nullopt;
  larger->group = layouts.at(section).group;
  ClusterLayouts grown = layouts;
  grown[section] = *larger;
  if (ClusterPlaces(cluster_, grown).price_per_hour() > options_.most_per_hour) return std::nullopt;
  return grown;
}

void ClusterPlanner::grow_until_hidden(ClusterLayouts& layouts, PlayedLayouts played, ClusterChoice& chosen) {
  const bool kept = !options_.kept.empty();
  const double alone = layouts.size() == 1 ? played.step_ms : alone_ms(layouts, chosen.critical);
  std::optional<ClusterLayouts> next = layouts;
  for (int round = 0; next && round < most_rounds; ++round) {
    const RunKeys before = keys_of_run_;
    if (round > 0) played = tuned(*next, play(*next));
    if (round > 0 && !kept && played.step_ms > chosen.played.step_ms * (1 - least_plan_gain)) {
      keys_of_run_ = before;
      return;
    }
    layouts = *std::move(next);
    chosen.played = std::move(played);
    chosen.stall = std::max(0.0, 1 - alone / chosen.played.step_ms);
    if (chosen.stall <= options_.stall || options_.cheapest) return;
    next = grown(layouts, most_wanted(layouts, chosen.played, chosen.critical));
  }
}

std::vector<std::string> ClusterPlanner::placed(const ClusterLayouts& layouts) const {
  const ClusterPlaces places(cluster_, layouts);
  std::vector<std::string> settings;
  for (const std::string& section : keys_.sections()) {
    const auto more = keys_.settings(section, layouts.at(section).layout, places.cuda_devices(section));
    settings.insert(settings.end(), more.begin(), more.end());
    if (keys_.of(section).contains("devices")) settings.push_back(section + ".processes=" + places.processes(section));
  }
  const auto of_run = run_settings(layouts);
  settings.insert(settings.end(), of_run.begin(), of_run.end());
  return settings;
}

void ClusterPlanner::fail_as_too_small() const {
  double memory = 0;
  for (const DescribedPool& pool : cluster_.pools) memory = std::max(memory, pool.memory_bytes);
  throw JobError("the " + std::to_string(cluster_.devices()) + " devices of " + printable(cluster_.name) +
                 " are too few, or their memory of " + std::to_string(std::llround(memory / (1 << 30))) +
                 " GiB is too small" + (options_.most_per_hour < unlimited ? ", or the budget is too low" : "") +
                 ", for the sections of the job");
}

ClusterChoice ClusterPlanner::choose() {
  ClusterChoice chosen;
  price_all();
  divide(cluster_.devices());
  keys_of_run_ = {};
  ClusterLayouts layouts;
  chosen.critical = options_.kept;
  if (const auto hidden = options_.kept.empty() ? std::nullopt : hidden_by_kept()) {
    chosen.least_bound_ms = hidden->least_bound_ms;
    layouts = layouts_of(hidden->division, hidden->allocation, all_devices());
    PlayedLayouts played = play_in_flight(layouts);
    played = tuned(layouts, std::move(played));
    grow_until_hidden(layouts, std::move(played), chosen);
  } else {
    const std::vector<Candidate> found = candidates(all_devices());
    if (found.empty()) fail_as_too_small();
    chosen.least_bound_ms = std::ranges::min(found, {}, &Candidate::least_bound_ms).least_bound_ms;
    for (const Candidate& each : found) chosen.front.insert(chosen.front.end(), each.front.begin(), each.front.end());
    if (found.front().division.groups.size() == keys_.sections().size()) {
      chosen.apart_bound_ms = found.front().least_bound_ms;
    }
    chosen.front = common_front(std::move(chosen.front));
    Tried best = tuned(spread(with_best_batches(best_of(found, all_devices())), found, chosen));
    chosen.rivals = rivals_of(best);
    layouts = std::move(best.layouts);
    if (chosen.critical.empty()) {
      chosen.critical =
          std::ranges::max_element(layouts, {}, [](const auto& entry) { return entry.second.bound_ms; })->first;
    }
    grow_until_hidden(layouts, std::move(best.played), chosen);
  }
  compare_rivals(layouts, chosen);
  chosen.played = played_whole(layouts, std::move(chosen.played));
  chosen.least_bound_ms = std::min(chosen.least_bound_ms, chosen.played.step_ms);  // passes of two steps may overlap
  const ClusterPlaces places(cluster_, layouts);
  for (const auto& [section, on] : layouts) chosen.bound_ms = std::max(chosen.bound_ms, on.bound_ms);
  chosen.devices = places.all_devices();
  chosen.sections = layouts;
  chosen.hosts = places.hosts();
  chosen.price_per_hour = places.price_per_hour();
  chosen.settings = placed(layouts);
  chosen.priced = lanes_.count();
  chosen.refused = refused_;
  chosen.first_refusal = first_refusal_;
  chosen.rehearsed = rehearsed_;
  return chosen;
}

}  // namespace maestro
