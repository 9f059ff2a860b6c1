// SPDX-License-Identifier: Apache-2.0
#include "actors/layouts/cluster_planner.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "actors/layouts/job_probes.hpp"
#include "actors/layouts/pooled_times.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

constexpr std::size_t rehearsed_steps = 5;  // beside those that are ahead
constexpr int most_rounds = 24;             // of more replicas for the sections that a kept section waits for
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
      options_(std::move(options)),
      base_(resolve_({})),
      keys_(base_, options_.varied),
      units_(first_steps(base_, rehearsed_steps + static_cast<std::size_t>(base_.train.ahead) + 1)),
      lanes_(cluster_, base_, keys_, options_.headroom, options_.hop_ms) {
  check_options();
}

void ClusterPlanner::check_options() const {
  if ((options_.cheapest || options_.most_per_hour < infinity) && !cluster_.priced()) {
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

std::vector<std::string> ClusterPlanner::emulated(const std::string& section, const SectionLayout& layout) const {
  std::vector<std::string> settings = keys_.settings(section, layout, "");
  std::erase_if(settings, [&](const std::string& each) { return each.starts_with(section + ".devices="); });
  settings.push_back(section + ".devices=[\"emulated\"]");
  return settings;
}

void ClusterPlanner::price(const std::string& section) {
  for (const SectionLayout& layout : lanes_.possible(section)) {
    try {
      lanes_.add(section, layout, resolve_(emulated(section, layout)), units_.front().samples);
    } catch (const JobError& refusal) {
      if (refused_++ == 0) first_refusal_ = refusal.what();
    }
  }
  if (lanes_.has(section)) return;
  throw JobError(section + ": no layout on " + std::to_string(cluster_.devices()) + " devices of " +
                 printable(cluster_.name) + (first_refusal_.empty() ? "" : ": " + first_refusal_));
}

void ClusterPlanner::price_all() {
  for (const std::string& section : keys_.sections()) {
    if (!lanes_.has(section)) price(section);
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
    const auto layout = lanes_.fewest(options_.kept, pool, infinity, devices[pool]);
    if (layout && (!best || layout->bound_ms < best->bound_ms)) best = layout;
  }
  return best;
}

std::optional<ClusterLayout> ClusterPlanner::layout_of(const std::string& section, std::size_t pool, double most_ms,
                                                       const std::vector<std::int64_t>& devices) const {
  if (section != options_.kept) return lanes_.fewest(section, pool, most_ms, devices[pool]);
  const auto kept = kept_layout(devices);
  return kept && kept->pool == pool ? kept : std::nullopt;
}

Allocator ClusterPlanner::allocator(const std::vector<std::int64_t>& devices) const {
  std::vector<DevicePool> pools;
  for (std::size_t pool = 0; pool < devices.size(); ++pool) {
    pools.push_back({devices[pool], cluster_.pools[pool].devices_of_host, cluster_.pools[pool].price_per_hour});
  }
  const auto fewest = [this, devices](std::size_t section, std::size_t pool,
                                      double most_ms) -> std::optional<Allotment> {
    const auto layout = layout_of(keys_.sections()[section], pool, most_ms, devices);
    if (!layout) return std::nullopt;
    return Allotment{pool, layout->layout.devices(), layout->bound_ms};
  };
  return {std::move(pools), keys_.sections().size(), fewest, options_.most_per_hour};
}

ClusterLayouts ClusterPlanner::layouts_of(const Allocation& allocation,
                                          const std::vector<std::int64_t>& devices) const {
  ClusterLayouts layouts;
  for (std::size_t at = 0; at < allocation.sections.size(); ++at) {
    const std::string& section = keys_.sections()[at];
    layouts[section] = layout_of(section, allocation.sections[at].pool, allocation.most_ms, devices).value();
  }
  return layouts;
}

std::vector<std::int64_t> ClusterPlanner::devices_of(const ClusterLayouts& layouts) const {
  std::vector<std::int64_t> devices(cluster_.pools.size());
  for (const auto& [section, on] : layouts) devices[on.pool] += on.layout.devices();
  return devices;
}

std::vector<std::int64_t> ClusterPlanner::hosts_of(const ClusterLayouts& layouts) const {
  std::vector<std::int64_t> hosts = devices_of(layouts);
  for (std::size_t pool = 0; pool < hosts.size(); ++pool) {
    const std::int64_t per_host = cluster_.pools[pool].devices_of_host;
    hosts[pool] = (hosts[pool] + per_host - 1) / per_host;
  }
  return hosts;
}

double ClusterPlanner::price_of(const std::vector<std::int64_t>& hosts) const {
  double price = 0;
  for (std::size_t pool = 0; pool < hosts.size(); ++pool) {
    price += static_cast<double>(hosts[pool]) * cluster_.pools[pool].price_per_hour;
  }
  return price;
}

ClusterPlanner::Played ClusterPlanner::play(const ClusterLayouts& layouts, const std::string& alone) {
  std::vector<std::string> settings;
  for (const auto& [section, on] : layouts) {
    const auto more = emulated(section, on.layout);
    settings.insert(settings.end(), more.begin(), more.end());
  }
  const JobPlan plan = resolve_(settings);
  const PooledTimes pooled(plan, layouts, cluster_, units_.front().samples, lanes_, options_.hop_ms);
  RehearsalChange change;
  for (const auto& [section, on] : layouts) {
    if (!alone.empty() && section != alone) change.faster[section] = infinity;
  }
  const SteadyRehearsal steady = rehearse_steps(plan, units_, pooled.times(), change).value_or_throw();
  ++rehearsed_;
  return {steady.time.period_ms(), section_shares(steady.rehearsed, plan.graph, steady.time)};
}

std::string ClusterPlanner::most_wanted(const ClusterLayouts& layouts, const Played& played) const {
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
  for (const auto& [section, on] : layouts) {
    if (section == options_.kept || !keys_.of(section).contains("replicas")) continue;
    if (most.empty() || wanted[section] > wanted[most]) most = section;
  }
  return most;
}

void ClusterPlanner::grow_until_hidden(ClusterLayouts& layouts, ClusterChoice& chosen) {
  const double alone = play(layouts, options_.kept).step_ms;
  for (int round = 0; round < most_rounds; ++round) {
    const Played played = play(layouts, "");
    chosen.step_ms = played.step_ms;
    chosen.shares = played.shares;
    chosen.stall = std::max(0.0, 1 - alone / played.step_ms);
    if (chosen.stall <= options_.stall || round + 1 == most_rounds) return;
    const std::string most = most_wanted(layouts, played);
    if (most.empty()) return;
    const std::size_t pool = layouts.at(most).pool;
    const auto larger = lanes_.grown(most, layouts.at(most), all_devices()[pool] - devices_of(layouts)[pool]);
    if (!larger) return;
    ClusterLayouts grown = layouts;
    grown[most] = *larger;
    if (price_of(hosts_of(grown)) > options_.most_per_hour) return;
    layouts = std::move(grown);
  }
}

std::vector<std::string> ClusterPlanner::placed(const ClusterLayouts& layouts) const {
  std::vector<std::string> settings;
  std::vector<std::string> sections = keys_.sections();
  const auto ranks_of = [&](const std::string& section) {
    return layouts.at(section).layout.tensor * layouts.at(section).layout.context;
  };
  std::ranges::stable_sort(sections, std::greater(), ranks_of);  // then no host is left with a gap
  std::vector<std::int64_t> first_process{0};                    // of each pool
  for (const std::int64_t hosts : hosts_of(layouts)) first_process.push_back(first_process.back() + hosts);
  std::vector<std::int64_t> used(cluster_.pools.size());  // devices of each pool
  for (const std::string& section : sections) {
    const auto& [layout, pool, bound_ms, bytes] = layouts.at(section);
    const std::int64_t per_host = cluster_.pools[pool].devices_of_host;
    std::vector<int> devices;
    std::string processes;
    for (std::int64_t stage = 0; stage < layout.replicas * layout.pipeline; ++stage) {
      processes += (processes.empty() ? "" : ", ") + std::to_string(first_process[pool] + used[pool] / per_host);
      for (std::int64_t rank = 0; rank < ranks_of(section); ++rank) {
        devices.push_back(static_cast<int>(used[pool]++ % per_host));
      }
    }
    const auto more = keys_.settings(section, layout, devices_text("cuda", devices));
    settings.insert(settings.end(), more.begin(), more.end());
    if (keys_.of(section).contains("devices")) settings.push_back(section + ".processes=[" + processes + "]");
  }
  return settings;
}

Allocation ClusterPlanner::allocate(ClusterChoice& chosen) const {
  const Allocator allocator = this->allocator(all_devices());
  const std::optional<Allocation> fastest = allocator.fastest();
  if (!fastest) {
    double memory = 0;
    for (const DescribedPool& pool : cluster_.pools) memory = std::max(memory, pool.memory_bytes);
    throw JobError("the " + std::to_string(cluster_.devices()) + " devices of " + printable(cluster_.name) +
                   " are too few, or their memory of " + std::to_string(std::llround(memory / (1 << 30))) +
                   " GiB is too small" + (options_.most_per_hour < infinity ? ", or --budget is too low" : "") +
                   ", for sections with devices of their own");
  }
  chosen.least_bound_ms = fastest->bound_ms;
  if (!options_.kept.empty()) {
    const double kept_ms = kept_layout(all_devices())->bound_ms;
    const auto hidden = allocator.within(kept_ms / (1 - options_.stall));
    if (hidden) chosen.least_bound_ms = kept_ms;
    return hidden.value_or(*fastest);
  }
  if (cluster_.priced()) chosen.front = allocator.front();
  return options_.cheapest ? chosen.front.back() : *fastest;
}

ClusterChoice ClusterPlanner::choose() {
  ClusterChoice chosen;
  price_all();
  ClusterLayouts layouts = layouts_of(allocate(chosen), all_devices());
  chosen.critical = options_.kept;
  if (options_.kept.empty()) {
    const Played played = play(layouts, "");
    chosen.step_ms = played.step_ms;
    chosen.shares = played.shares;
    chosen.critical =
        std::ranges::max_element(layouts, {}, [](const auto& entry) { return entry.second.bound_ms; })->first;
    chosen.stall = std::max(0.0, 1 - play(layouts, chosen.critical).step_ms / played.step_ms);
  } else {
    grow_until_hidden(layouts, chosen);
  }
  for (const auto& [section, on] : layouts) {
    chosen.bound_ms = std::max(chosen.bound_ms, on.bound_ms);
    chosen.devices += on.layout.devices();
  }
  chosen.sections = layouts;
  chosen.hosts = hosts_of(layouts);
  chosen.price_per_hour = price_of(chosen.hosts);
  chosen.settings = placed(layouts);
  chosen.priced = lanes_.count();
  chosen.refused = refused_;
  chosen.first_refusal = first_refusal_;
  chosen.rehearsed = rehearsed_;
  return chosen;
}

std::vector<ClusterCell> ClusterPlanner::cells() {
  price_all();
  std::vector<ClusterCell> cells;
  std::map<std::string, std::size_t> largest;  // pool of each kind
  for (std::size_t pool = 0; pool < cluster_.pools.size(); ++pool) {
    const auto [found, first] = largest.try_emplace(cluster_.pools[pool].kind, pool);
    if (!first && cluster_.pools[pool].devices() > cluster_.pools[found->second].devices()) found->second = pool;
  }
  for (const auto& [kind, pool] : largest) {
    const std::int64_t all = cluster_.pools[pool].devices();
    double fastest = infinity;  // of fewer devices
    for (std::int64_t count = 1;; count = std::min(2 * count, all)) {
      std::vector<std::int64_t> devices(cluster_.pools.size());
      devices[pool] = count;
      const auto allocation = allocator(devices).fastest();
      if (allocation && allocation->bound_ms < fastest) {
        ClusterCell cell = cell_of(layouts_of(*allocation, devices));
        cell.pool = pool;
        cell.devices = count;
        fastest = allocation->bound_ms;
        cells.push_back(std::move(cell));
      }
      if (count == all) break;
    }
  }
  return cells;
}

ClusterCell ClusterPlanner::cell_of(const ClusterLayouts& layouts) {
  const Played played = play(layouts, "");
  ClusterCell cell;
  cell.sections = layouts;
  cell.step_ms = played.step_ms;
  double devices = 0;
  for (const auto& [section, on] : layouts) {
    devices += static_cast<double>(on.layout.devices());
    cell.bytes = std::max(cell.bytes, on.bytes);
    const SectionShares shares = mean_shares(played.shares, section);
    cell.busy += static_cast<double>(on.layout.devices()) * (shares.passes + shares.step_ends);
  }
  cell.busy /= devices;
  cell.price_per_hour = price_of(hosts_of(layouts));
  cell.settings = placed(layouts);
  return cell;
}

}  // namespace maestro
