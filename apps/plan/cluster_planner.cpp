// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/cluster_planner.hpp"

#include <algorithm>
#include <cmath>

#include "apps/plan/cluster_places.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/page/markup.hpp"

namespace maestro {

namespace {

constexpr int most_growths = 24;  // sets of layouts that growth compares, the first included

double waits_of(const SectionShares& shares) {
  double sum = 0;
  for (const auto& [reason, share] : shares.waits) sum += share;
  return sum;
}

/// Returns the section that a wait names: "input from vision".
std::string section_in(const std::string& reason) {
  const auto from = reason.rfind("from ");
  return from == std::string::npos ? std::string() : reason.substr(from + 5);
}

/// Returns the section that the critical one waits for most; empty: none can have more replicas.
std::string most_wanted(const ClusterJob& job, const LayoutTrial& trial, const std::string& critical) {
  std::map<std::string, double> wanted;
  for (const auto& [name, shares] : trial.played.shares) {
    const std::string section = name.substr(0, name.find(".stage"));
    if (section == critical) {
      for (const auto& [reason, share] : shares.waits) wanted[section_in(reason)] += share;
    } else {
      wanted[section] += 1e-3 * (1 - waits_of(shares));  // prefers the busiest section if waits name none
    }
  }
  const ClusterPlaces places(job.cluster, trial.layouts);
  std::string most;
  for (const auto& [section, on] : trial.layouts) {
    const bool fixed = places.shared(section) || !on.more.empty() || !job.keys.of(section).contains("replicas");
    if (section == critical || fixed) continue;
    if (most.empty() || wanted[section] > wanted[most]) most = section;
  }
  return most;
}

/// Returns the layouts with more replicas of a section; nothing without room or money for them.
std::optional<ClusterLayouts> grown(const ClusterJob& job, const ClusterLanes& lanes, const ClusterLayouts& layouts,
                                    const std::string& section) {
  if (section.empty()) return std::nullopt;
  const std::size_t pool = layouts.at(section).pool;
  const std::int64_t left = job.devices_of_pools()[pool] - ClusterPlaces(job.cluster, layouts).devices()[pool];
  auto larger = lanes.grown(section, layouts.at(section), left);
  if (!larger) return std::nullopt;
  larger->group = layouts.at(section).group;
  ClusterLayouts grown = layouts;
  grown[section] = *larger;
  if (ClusterPlaces(job.cluster, grown).price_per_hour() > job.options.most_per_hour) return std::nullopt;
  return grown;
}

struct SectionNeed {
  double bytes = infinite;  // on each device
  std::int64_t devices = 0;
};

/// Returns the layout of a section that needs the least memory on a device, however much that is.
SectionNeed least_need(const LayoutCatalogue& catalogue, const std::string& section) {
  SectionNeed least;
  const bool shards = catalogue.zero_choices(section).back();
  for (const ClusterLane& lane : catalogue.of(section)) {
    const std::int64_t most = std::min(catalogue.cluster().pools[lane.pool].devices() / lane.devices(), lane.batches);
    const std::int64_t replicas =
        std::max<std::int64_t>(catalogue.given_replicas(section).value_or(shards ? most : 1), 1);
    const double bytes = lane.other_bytes + lane.state_bytes / static_cast<double>(shards ? replicas : 1);
    if (bytes < least.bytes) least = {bytes, lane.devices() * replicas};
  }
  return least;
}

}  // namespace

ClusterPlanner::ClusterPlanner(Resolve resolve, DescribedCluster cluster, ClusterPlannerOptions options)
    : job_(std::move(resolve), std::move(cluster), std::move(options)),
      catalogue_(job_.cluster, job_.base, job_.keys, job_.options.headroom, job_.options.hop_ms),
      bench_(job_, catalogue_) {}

LayoutTrial ClusterPlanner::best_of(const Divisions& divisions, const std::vector<DivisionCandidate>& candidates,
                                    const std::vector<std::int64_t>& devices, Rivals& rivals) {
  std::vector<ClusterLayouts> seen;
  std::optional<LayoutTrial> best;
  const auto cost = [&](const LayoutTrial& each, double step_ms) {
    return job_.options.cheapest ? each.price_per_hour * step_ms : step_ms;
  };
  std::vector<std::pair<Division, Allocation>> variants;
  for (const DivisionCandidate* const candidate : divisions.promising(candidates)) {
    for (Division& division : divisions.variants_of(candidate->division)) {
      const bool same = division.sharing == candidate->division.sharing;
      if (auto made = same ? candidate->allocation : divisions.allocated(division, devices)) {
        variants.emplace_back(std::move(division), *std::move(made));
      }
    }
  }
  for (auto& [division, allocation] : variants) {
    LayoutTrial made = bench_.trial(text_of(division), divisions.layouts_of(division, allocation, devices));
    if (std::ranges::any_of(seen, [&](const auto& other) { return same_layouts(made.layouts, other); })) continue;
    seen.push_back(made.layouts);
    const double best_cost = best ? cost(*best, best->played.step_ms) : infinite;
    const double least_ms = busiest_ms(made.layouts);
    if (cost(made, least_ms) > best_cost * alike_costs) {
      rivals.add(made, least_ms, false);
      continue;
    }
    bench_.play_in_flight(made);
    const double made_cost = cost(made, made.played.step_ms);
    const bool better =
        made_cost * alike_costs < best_cost || (made_cost < best_cost * alike_costs && made.devices < best->devices);
    if (best) {
      const LayoutTrial& rival = better ? *best : made;
      rivals.add(rival, rival.played.step_ms);
    }
    if (!best || better) best = std::move(made);
  }
  return *std::move(best);
}

void ClusterPlanner::try_spread(LayoutTrial& best, const std::vector<SpreadLayouts::Found>& found, Rivals& rivals) {
  if (found.empty()) return;
  // Replicas on several pools have speeds, so sections are compared with speeds.
  const PlannedRunKeys keys{true, 0};
  double most_ms = std::min(best.played.step_ms, bench_.play(best.layouts, keys).step_ms) * (1 - least_plan_gain);
  for (const auto& [text, layouts] : found) {
    LayoutTrial made = bench_.trial(text, layouts);
    made.keys = keys;
    bench_.play_in_flight(made);
    const bool gains = made.played.step_ms <= most_ms;
    const LayoutTrial& rival = gains ? best : made;
    rivals.add(rival, rival.played.step_ms);
    if (!gains) continue;
    most_ms = made.played.step_ms;
    best = std::move(made);
  }
}

void ClusterPlanner::tune_with_rivals(LayoutTrial& best, Rivals& rivals) {
  bench_.tune(best);
  if (job_.options.cheapest) return;
  for (const RivalDivision& rival : rivals.close_to(best.played.step_ms)) {
    LayoutTrial other = bench_.trial(rival.text, rival.layouts);
    other.played = bench_.play(other.layouts);
    bench_.tune(other);
    if (other.played.step_ms > best.played.step_ms * (1 - least_plan_gain)) continue;
    rivals.add(best, best.played.step_ms);
    best = std::move(other);
  }
}

double ClusterPlanner::grow_until_hidden(LayoutTrial& best, const ClusterLanes& lanes, const std::string& critical) {
  RehearsalChange others;
  for (const auto& [section, on] : best.layouts) {
    if (section != critical) others.faster[section] = infinite;
  }
  const double alone_ms =
      others.faster.empty() ? best.played.step_ms : bench_.changed_ms(best.layouts, best.keys, others);
  const auto stall = [&] { return std::max(0.0, 1 - alone_ms / best.played.step_ms); };
  for (int round = 1; round < most_growths && stall() > job_.options.stall && !job_.options.cheapest; ++round) {
    auto layouts = grown(job_, lanes, best.layouts, most_wanted(job_, best, critical));
    if (!layouts) break;
    LayoutTrial next = bench_.trial(best.text, *std::move(layouts));
    next.keys = best.keys;
    next.played = bench_.play(next.layouts, next.keys);
    bench_.tune(next);
    if (job_.options.kept.empty() && next.played.step_ms > best.played.step_ms * (1 - least_plan_gain)) break;
    best = std::move(next);
  }
  return stall();
}

void ClusterPlanner::fail_as_too_small() const {
  constexpr double gib = 1 << 30;
  const auto text = [](double bytes) { return fixed(std::ceil(bytes / gib * 10) / 10, 1) + " GiB"; };
  double memory = 0;
  for (const DescribedPool& pool : job_.cluster.pools) memory = std::max(memory, pool.memory_bytes);
  std::string needs;
  for (const std::string& section : job_.keys.sections()) {
    const SectionNeed need = least_need(catalogue_, section);
    needs += (needs.empty() ? "" : ", ") + section + " " + text(need.bytes) + " on each of " +
             std::to_string(need.devices) + (need.devices == 1 ? " device" : " devices");
  }
  throw ClusterTooSmall(
      "the " + std::to_string(job_.cluster.devices()) + " devices of " + printable(job_.cluster.name) +
      " are too few, or their memory of " + text(memory) + ", of which plans take " +
      std::to_string(std::lround(job_.options.headroom * 100)) + "%, is too small" +
      (job_.options.most_per_hour < infinite ? ", or the budget is too low" : "") + "; the smallest needs: " + needs);
}

LayoutTrial ClusterPlanner::best_of_all(const Divisions& divisions, Rivals& rivals, ClusterChoice& chosen) {
  const std::vector<std::int64_t> devices = job_.devices_of_pools();
  const std::vector<DivisionCandidate> found = divisions.candidates(devices);
  if (found.empty()) fail_as_too_small();
  chosen.least_bound_ms = std::ranges::min(found, {}, &DivisionCandidate::least_bound_ms).least_bound_ms;
  for (const DivisionCandidate& each : found)
    chosen.front.insert(chosen.front.end(), each.front.begin(), each.front.end());
  if (found.front().division.groups.size() == job_.keys.sections().size()) {
    chosen.apart_bound_ms = found.front().least_bound_ms;
  }
  chosen.front = common_front(std::move(chosen.front));
  LayoutTrial best = best_of(divisions, found, devices, rivals);
  bench_.vary_batches(best, divisions.lanes());
  bench_.vary_chunks(best, divisions.lanes());
  if (job_.cluster.pools.size() > 1 && !job_.options.cheapest) {
    const SpreadLayouts spread = spread_layouts(job_, divisions, found, best.played.step_ms);
    chosen.least_bound_ms = std::min(chosen.least_bound_ms, spread.least_bound_ms);
    chosen.apart_bound_ms = std::min(chosen.apart_bound_ms, spread.apart_bound_ms);
    try_spread(best, spread.worth, rivals);
  }
  tune_with_rivals(best, rivals);
  if (chosen.critical.empty()) {
    const auto bound = [](const auto& entry) { return entry.second.bound_ms; };
    chosen.critical = std::ranges::max_element(best.layouts, {}, bound)->first;
  }
  return best;
}

ClusterChoice ClusterPlanner::choose() {
  catalogue_.price_all(job_.resolve, job_.samples());
  const Divisions divisions(job_, catalogue_, job_.cluster.devices());
  ClusterChoice chosen;
  chosen.critical = job_.options.kept;
  Rivals rivals;
  LayoutTrial best;
  if (const auto hidden = job_.options.kept.empty() ? std::nullopt : divisions.hidden_by_kept()) {
    chosen.least_bound_ms = hidden->least_bound_ms;
    best = bench_.trial({}, divisions.layouts_of(hidden->division, hidden->allocation, job_.devices_of_pools()));
    bench_.play_in_flight(best);
    bench_.tune(best);
  } else {
    best = best_of_all(divisions, rivals, chosen);
  }
  chosen.stall = grow_until_hidden(best, divisions.lanes(), chosen.critical);
  chosen.rivals = rivals.of(best, job_.options.cheapest);
  if (!chosen.rivals.empty() && !job_.options.cheapest) {
    chosen.certainties = certainties(job_, bench_, best, chosen.rivals, chosen.critical);
  }
  bench_.play_whole(best);
  chosen.played = std::move(best.played);
  chosen.sections = std::move(best.layouts);
  chosen.least_bound_ms = std::min(chosen.least_bound_ms, chosen.played.step_ms);  // passes of two steps may overlap
  for (const auto& [section, on] : chosen.sections) chosen.bound_ms = std::max(chosen.bound_ms, on.bound_ms);
  const ClusterPlaces places(job_.cluster, chosen.sections);
  chosen.devices = places.all_devices();
  chosen.hosts = places.hosts();
  chosen.price_per_hour = places.price_per_hour();
  chosen.settings = job_.placed_settings(chosen.sections, best.keys);
  chosen.priced = catalogue_.count();
  chosen.refused = catalogue_.refused();
  chosen.first_refusal = catalogue_.first_refusal();
  chosen.rehearsed = bench_.rehearsed();
  return chosen;
}

std::vector<ClusterCell> ClusterPlanner::cells() {
  catalogue_.price_all(job_.resolve, job_.samples());
  const std::vector<DescribedPool>& pools = job_.cluster.pools;
  std::map<std::string, std::size_t> largest;  // pool of each kind
  for (std::size_t pool = 0; pool < pools.size(); ++pool) {
    const auto [found, first] = largest.try_emplace(pools[pool].kind, pool);
    if (!first && pools[pool].devices() > pools[found->second].devices()) found->second = pool;
  }
  std::vector<ClusterCell> cells;
  for (const auto& [kind, pool] : largest) {
    const std::int64_t all = pools[pool].devices();
    double fastest = infinite;  // step on fewer devices
    for (std::int64_t count = 1;; count = std::min(2 * count, all)) {
      std::vector<std::int64_t> devices(pools.size());
      devices[pool] = count;
      const Divisions divisions(job_, catalogue_, count);
      const std::vector<DivisionCandidate> found = divisions.candidates(devices);
      if (!found.empty()) {
        Rivals rivals;
        LayoutTrial best = best_of(divisions, found, devices, rivals);
        bench_.tune(best);
        bench_.play_whole(best);
        ClusterCell cell = cell_of(best);
        cell.pool = pool;
        cell.devices = count;
        if (cell.step_ms < fastest) cells.push_back(cell);
        fastest = std::min(fastest, cell.step_ms);
      }
      if (count == all) break;
    }
  }
  return cells;
}

ClusterCell ClusterPlanner::cell_of(const LayoutTrial& trial) const {
  ClusterCell cell;
  cell.sections = trial.layouts;
  cell.step_ms = trial.played.step_ms;
  std::map<std::size_t, double> bytes;  // needed per device, by group
  for (const auto& [section, on] : trial.layouts) {
    const SectionShares shares = mean_shares(trial.played.shares, section);
    cell.busy += static_cast<double>(on.layout.devices()) * (shares.passes + shares.step_ends);
    cell.bytes = std::max(cell.bytes, bytes[on.group] += on.bytes);
  }
  cell.busy = std::min(1.0, cell.busy / static_cast<double>(trial.devices));
  cell.price_per_hour = trial.price_per_hour;
  cell.settings = job_.placed_settings(trial.layouts, trial.keys);
  return cell;
}

}  // namespace maestro
