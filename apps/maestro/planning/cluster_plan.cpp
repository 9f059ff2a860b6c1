// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/planning/cluster_plan.hpp"

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/maestro/planning/cluster_rivals.hpp"
#include "apps/maestro/planning/plan_page.hpp"
#include "apps/maestro/planning/planned_file.hpp"
#include "apps/plan/cluster_planner.hpp"
#include "apps/plan/kept_places.hpp"
#include "apps/plan/ranking_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/observe/output_file.hpp"
#include "runtime/observe/padded.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/page/markup.hpp"
#include "runtime/rehearsal/rehearsed_trace.hpp"

namespace maestro {

namespace {

using Json = nlohmann::ordered_json;

constexpr double gib = 1 << 30;

/// Returns the settings of a plan with the places of an earlier one, as far as they can be kept.
std::vector<std::string> settings_from(const PlanArguments& arguments, const PlannedFile& file,
                                       const ClusterChoice& chosen, const DescribedCluster& cluster, Console& console) {
  if (arguments.from.empty()) return chosen.settings;
  if (cluster.pools.size() > 1)
    throw JobError("--from: takes a cluster with one pool only, as hosts of several pools keep their numbers");
  std::map<std::string, double> bytes;
  for (const auto& [section, on] : chosen.sections) bytes[section] = on.bytes;
  const KeptPlaces kept = kept_places(JobDocument::load(arguments.from), file.document(chosen.settings),
                                      chosen.settings, bytes, cluster.pools.front().devices_of_host);
  std::string hosts;
  for (const std::int64_t host : kept.hosts) hosts += (hosts.empty() ? "" : ",") + std::to_string(host);
  console.note("moved     " + fixed(kept.moved_bytes / gib, 1) + " of " + fixed(kept.bytes / gib, 1) + " GiB since " +
               printable(arguments.from.string()) + "; the processes run on its hosts " + hosts);
  return kept.settings;
}

/// Returns the sections to which the job gives a speed for each replica, as an earlier plan does.
std::set<std::string> planned_speeds_of(const PlannedApp& job) {
  const std::map<std::string, std::string>& settings = job.settings();
  std::set<std::string> planned;
  for (const std::string& section : job.sections()) {
    const auto found = settings.find(section + ".speed");
    if (found != settings.end() && found->second.starts_with("[")) planned.insert(section);
  }
  return planned;
}

/// Resolves a job with every section on emulated devices, and with the slots that it has between a cluster's hosts.
ResolvedJob resolve_emulated(PlannedApp& job, const DescribedCluster& cluster,
                             const std::set<std::string>& planned_speeds, std::vector<std::string> settings) {
  const bool hosts = cluster.pools.size() > 1 || cluster.pools.front().hosts > 1;
  const auto sets = [&](const std::string& key) {
    return std::ranges::any_of(settings, [&](const std::string& each) { return each.starts_with(key); });
  };
  if (hosts && !sets("transport.slots=") && !job.settings().contains("transport.slots")) {
    settings.push_back("transport.slots=" + std::to_string(slots_between_hosts));
  }
  for (const std::string& section : job.sections()) {
    const std::string key = section + ".devices=";
    if (!sets(key)) settings.push_back(key + "[\"emulated\"]");
    settings.push_back(section + ".processes=[]");  // of a job that was planned before
    if (planned_speeds.contains(section) && !sets(section + ".speed=")) settings.push_back(section + ".speed=1");
  }
  return job.resolve(settings, 0);
}

constexpr std::size_t most_points = 8;  // points of the front in print

/// Returns the price of a million samples at a price per hour.
double price_of_samples(double price_per_hour, double step_ms, const ResolvedJob& job) {
  return price_per_hour * step_ms / 3.6e6 / static_cast<double>(job.train.global_batch) * 1e6;
}

std::string hosts_text(const std::vector<std::int64_t>& hosts, const DescribedCluster& cluster) {
  std::string text;
  for (std::size_t pool = 0; pool < hosts.size(); ++pool) {
    if (hosts[pool] == 0) continue;
    text += (text.empty() ? "" : " + ") + std::to_string(hosts[pool]) + " " + printable(cluster.pools[pool].name);
  }
  return text;
}

/// Returns "8 new + 13 old": devices of a section by pool.
std::string devices_text(const ClusterLayout& on, const DescribedCluster& cluster) {
  std::string text;
  for (const PoolShare& share : on.shares()) {
    const std::int64_t devices = on.layout.devices() / on.layout.replicas * share.replicas;
    text += (text.empty() ? "" : " + ") + std::to_string(devices) + " " + printable(cluster.pools[share.pool].name);
  }
  return text;
}

void print_front(const ClusterChoice& chosen, const DescribedCluster& cluster, const ResolvedJob& job) {
  const std::size_t count = chosen.front.size();
  if (count < 2) return;
  PrintedLine() << "front     bound ms  an hour   a million samples  hosts";
  for (std::size_t row = 0; row < std::min(count, most_points); ++row) {
    const std::size_t at = count <= most_points ? row : row * (count - 1) / (most_points - 1);
    const Allocation& point = chosen.front[at];
    PrintedLine() << "          " << padded(fixed(point.bound_ms, 1), 10) << padded(fixed(point.price_per_hour, 2), 10)
                  << padded(fixed(price_of_samples(point.price_per_hour, point.bound_ms, job), 2), 19)
                  << hosts_text(point.hosts, cluster);
  }
}

void print_sections(const ClusterChoice& chosen, const DescribedCluster& cluster) {
  std::size_t width = 9;
  std::size_t place_width = 9;
  const auto place_of = [&](const ClusterLayout& on) {
    return cluster.pools.size() > 1 ? devices_text(on, cluster) : std::to_string(on.layout.devices());
  };
  for (const auto& [section, on] : chosen.sections) {
    width = std::max(width, section.size() + 2);
    place_width = std::max(place_width, place_of(on).size() + 2);
  }
  PrintedLine() << padded("section", width) << padded("devices", place_width)
                << "bound ms  GiB   passes  step end  waits  layout";
  for (const auto& [section, on] : chosen.sections) {
    const SectionShares shares = mean_shares(chosen.played.shares, section);
    PrintedLine() << padded(section, width) << padded(place_of(on), place_width) << padded(fixed(on.bound_ms, 1), 10)
                  << padded(fixed(on.bytes / gib, 1), 6) << padded(percent(shares.passes), 8)
                  << padded(percent(shares.step_ends), 10) << padded(percent(1 - shares.passes - shares.step_ends), 7)
                  << layout_text(on.layout);
  }
}

void print_groups(const ClusterChoice& chosen) {
  std::map<std::size_t, std::vector<std::string>> groups;
  for (const auto& [section, on] : chosen.sections) groups[on.group].push_back(section);
  for (const auto& [group, sections] : groups) {
    if (sections.size() < 2) continue;
    PrintedLine line;
    line << "shared    ";
    for (std::size_t at = 0; at < sections.size(); ++at) {
      line << (at == 0 ? "" : at + 1 == sections.size() ? " and " : ", ") << sections[at];
    }
    line << " share their devices";
  }
}

void print_critical(const ClusterChoice& chosen, const DescribedCluster& cluster, const PlanArguments& arguments) {
  PrintedLine line;
  line << "critical  " << chosen.critical << ", which waits for others " << percent(chosen.stall) << " of the time";
  for (const auto& [reason, share] : mean_shares(chosen.played.shares, chosen.critical).waits) {
    if (share >= 0.005) line << "; " << reason << " " << percent(share);
  }
  if (!arguments.kept.empty() && chosen.stall > arguments.stall) {
    const std::int64_t left = cluster.devices() - chosen.devices;
    line << ", more than the " << percent(arguments.stall) << " that it may: ";
    if (left == 0) line << "the cluster lacks room for more";
    if (left > 0) line << "the search for more replicas of the others ended with " << left << " devices left";
  }
}

void print(const ClusterChoice& chosen, const DescribedCluster& cluster, const ResolvedJob& job,
           const PlanArguments& arguments) {
  PrintedLine() << job.name << " on " << printable(cluster.name) << ": " << chosen.devices << " of "
                << cluster.devices() << " devices. " << chosen.priced << " layouts of sections priced, "
                << chosen.rehearsed << " rehearsals. All times follow from the description; none is measured.";
  PrintedLine() << "step      " << fixed(chosen.played.step_ms, 1) << " ms, "
                << fixed(static_cast<double>(job.train.global_batch) / chosen.played.step_ms * 1e3, 1) << " samples/s";
  print_sections(chosen, cluster);
  print_groups(chosen);
  PrintedLine() << "bound     no division of the devices that was compared takes less than "
                << fixed(chosen.least_bound_ms, 1) << " ms"
                << (chosen.apart_bound_ms > chosen.least_bound_ms
                        ? " (" + fixed(chosen.apart_bound_ms, 1) + " if no sections share devices)"
                        : "")
                << "; the choice is " << percent(chosen.played.step_ms / chosen.least_bound_ms - 1) << " above";
  print_critical(chosen, cluster, arguments);
  print_rivals(chosen);
  if (chosen.price_per_hour > 0) {
    PrintedLine() << "price     " << fixed(chosen.price_per_hour, 2) << " an hour for "
                  << hosts_text(chosen.hosts, cluster) << ", "
                  << fixed(price_of_samples(chosen.price_per_hour, chosen.played.step_ms, job), 2)
                  << " for a million samples";
  }
  print_front(chosen, cluster, job);
  std::string keys;
  for (const std::string& setting : chosen.settings) {
    const bool of_run = setting.starts_with("transport.") || setting.find(".speed=") != std::string::npos ||
                        setting.find(".max_in_flight=") != std::string::npos;
    if (of_run) keys += (keys.empty() ? "" : ", ") + with_runs(setting);
  }
  if (!keys.empty()) PrintedLine() << "run       " << keys;
  if (chosen.refused > 0) {
    PrintedLine() << "refused   " << chosen.refused << " layouts, the first: " << printable(chosen.first_refusal);
  }
}

Json json_of(const Allocation& point, const DescribedCluster& cluster, const ResolvedJob& job) {
  Json hosts = Json::object();
  for (std::size_t pool = 0; pool < point.hosts.size(); ++pool) hosts[cluster.pools[pool].name] = point.hosts[pool];
  return {{"bound_ms", point.bound_ms},
          {"price_per_hour", point.price_per_hour},
          {"price_per_million_samples", price_of_samples(point.price_per_hour, point.bound_ms, job)},
          {"hosts", hosts}};
}

Json json_of(const ClusterChoice& chosen, const DescribedCluster& cluster, const ResolvedJob& job) {
  Json sections = Json::object();
  for (const auto& [section, on] : chosen.sections) {
    const SectionLayout& layout = on.layout;
    sections[section] = {{"devices", layout.devices()},
                         {"pool", cluster.pools[on.pool].name},
                         {"replicas", layout.replicas},
                         {"tensor", layout.tensor},
                         {"context", layout.context},
                         {"pipeline", layout.pipeline},
                         {"chunks", layout.chunks},
                         {"zero", layout.zero},
                         {"micro_batch", layout.micro_batch},
                         {"bound_ms", on.bound_ms},
                         {"bytes", on.bytes},
                         {"group", on.group}};
    if (on.more.empty()) continue;
    Json parts = Json::array();
    for (const PoolShare& share : on.shares()) {
      parts.push_back({{"pool", cluster.pools[share.pool].name}, {"replicas", share.replicas}});
    }
    sections[section]["parts"] = std::move(parts);
  }
  Json front = Json::array();
  for (const Allocation& point : chosen.front) front.push_back(json_of(point, cluster, job));
  Json answer{{"cluster", cluster.name},
              {"devices", chosen.devices},
              {"step_ms", chosen.played.step_ms},
              {"bound_ms", chosen.bound_ms},
              {"least_bound_ms", chosen.least_bound_ms},
              {"apart_bound_ms", chosen.apart_bound_ms},
              {"critical", chosen.critical},
              {"stall", chosen.stall},
              {"price_per_hour", chosen.price_per_hour},
              {"priced", chosen.priced},
              {"refused", chosen.refused},
              {"rehearsed", chosen.rehearsed},
              {"sections", sections},
              {"front", front},
              {"settings", chosen.settings}};
  add_rivals(chosen, answer);
  return answer;
}

/// Returns the text of a job's cells file, which a scheduler of several jobs reads.
std::string cells_text(const std::vector<ClusterCell>& cells, const DescribedCluster& cluster, const ResolvedJob& job) {
  Json list = Json::array();
  for (const ClusterCell& cell : cells) {
    const DescribedPool& pool = cluster.pools[cell.pool];
    Json layout = Json::object();
    for (const auto& [section, on] : cell.sections) layout[section] = layout_text(on.layout);
    Json price;  // null: unknown
    if (pool.price_per_hour > 0) price = price_of_samples(cell.price_per_hour, cell.step_ms, job);
    list.push_back({{"kind", pool.kind},
                    {"devices", cell.devices},
                    {"step_ms", cell.step_ms},
                    {"busy", cell.busy},
                    {"bytes", cell.bytes},
                    {"price_per_million_samples", price},
                    {"layout", layout},
                    {"settings", cell.settings}});
  }
  const Json file{{"format", "maestro-cells-1"},
                  {"job", job.name},
                  {"cluster", cluster.name},
                  {"global_batch", job.train.global_batch},
                  {"cells", list}};
  return file.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

PageTable sections_table(const ClusterChoice& chosen, const DescribedCluster& cluster) {
  PageTable table{"Layouts", "", {"section", "devices", "layout", "bound ms", "GiB a device", "shares with"}, {}};
  for (const auto& [section, on] : chosen.sections) {
    std::string others;
    for (const auto& [other, its] : chosen.sections) {
      if (other != section && its.group == on.group) others += (others.empty() ? "" : ", ") + other;
    }
    table.rows.push_back({{section},
                          {devices_text(on, cluster)},
                          {layout_text(on.layout)},
                          {fixed(on.bound_ms, 1)},
                          {fixed(on.bytes / gib, 1)},
                          {others}});
  }
  return table;
}

PlanPage page_of(const ClusterChoice& chosen, const DescribedCluster& cluster, const ResolvedJob& job) {
  PlanPage page;
  page.title = job.name + " on " + cluster.name;
  page.timeline = timeline_of(chosen.played.lanes, chosen.played.graph);
  page.remark = "A plan for described devices: no time in it is measured.";
  page.figures = {
      {"step", fixed(chosen.played.step_ms, 1) + " ms", "rehearsed"},
      {"samples a second", fixed(static_cast<double>(job.train.global_batch) / chosen.played.step_ms * 1e3, 1), ""},
      {"bound", fixed(chosen.least_bound_ms, 1) + " ms",
       "the step is " + percent(chosen.played.step_ms / chosen.least_bound_ms - 1) + " above"},
      {"devices", std::to_string(chosen.devices), "of " + std::to_string(cluster.devices())}};
  if (chosen.price_per_hour > 0) {
    page.figures.push_back({"an hour", fixed(chosen.price_per_hour, 2), hosts_text(chosen.hosts, cluster)});
    page.figures.push_back(
        {"a million samples", fixed(price_of_samples(chosen.price_per_hour, chosen.played.step_ms, job), 2), ""});
  }
  std::map<std::size_t, std::pair<std::string, double>> groups;  // sections and bytes per device
  std::map<std::size_t, double> memory;                          // device memory by group
  for (const auto& [section, on] : chosen.sections) {
    page.times.push_back(time_row(section, mean_shares(chosen.played.shares, section), page.timeline));
    auto& [names, bytes] = groups[on.group];
    names += (names.empty() ? "" : ", ") + section;
    bytes += on.bytes;
    for (const PoolShare& share : on.shares()) {
      const auto [found, first] = memory.try_emplace(on.group, cluster.pools[share.pool].memory_bytes);
      if (!first) found->second = std::min(found->second, cluster.pools[share.pool].memory_bytes);
    }
  }
  for (const auto& [group, needed] : groups) {
    const double all = memory[group];
    const std::string remark = fixed(needed.second / gib, 1) + " of " + fixed(all / gib, 0) + " GiB";
    page.memory.push_back({needed.first, {{needed.second / all, "s8 p-both", remark}}, remark});
  }
  for (const Allocation& point : chosen.front) {
    const double price = price_of_samples(point.price_per_hour, point.bound_ms, job);
    page.front.push_back(
        {point.bound_ms, price,
         fixed(point.bound_ms, 1) + " ms, " + fixed(price, 2) + ": " + hosts_text(point.hosts, cluster)});
  }
  page.tables = rival_tables(chosen);
  page.tables.insert(page.tables.begin(), sections_table(chosen, cluster));
  return page;
}

ClusterPlannerOptions options_of(const PlanArguments& arguments, const PlannedApp& job) {
  ClusterPlannerOptions options;
  options.varied.insert(arguments.on_machine.varied.begin(), arguments.on_machine.varied.end());
  options.varied.insert("devices");
  options.kept = arguments.kept;
  options.stall = arguments.stall;
  options.slots = !job.settings().contains("transport.slots");
  options.cheapest = arguments.objective == "money";
  options.planned_speeds = planned_speeds_of(job);
  if (arguments.most_per_hour > 0) options.most_per_hour = arguments.most_per_hour;
  return options;
}

/// Returns `recompute = "layers"` for every trained section that supports it and for which the job gives no
/// `recompute`: less memory and the same bits, for one more forward pass.
std::vector<std::string> recompute_settings(const LayoutCatalogue::Resolve& resolve) {
  const ResolvedJob base = resolve({});
  std::vector<std::string> settings;
  for (const GraphNode& node : base.graph.nodes()) {
    const std::string key = node.section_name() + ".recompute";
    if (!node.runs_backward() || node.stage > 0 || base.settings.contains(key)) continue;
    settings.push_back(key + "=\"layers\"");
    try {
      (void)resolve(settings);
    } catch (const JobError&) {  // not every type of section computes again
      settings.pop_back();
    }
  }
  return settings;
}

/// Returns a planner and its choice; with settings that save memory if the job fits in no other way.
std::pair<std::unique_ptr<ClusterPlanner>, ClusterChoice> choose(const LayoutCatalogue::Resolve& resolve,
                                                                 const DescribedCluster& cluster,
                                                                 ClusterPlannerOptions options, Console& console) {
  const auto planned = [&] {
    auto planner = std::make_unique<ClusterPlanner>(resolve, cluster, options);
    ClusterChoice choice = planner->choose();
    return std::pair(std::move(planner), std::move(choice));
  };
  try {
    return planned();
  } catch (const ClusterTooSmall& refusal) {
    options.settings = recompute_settings(resolve);
    const std::string less = "; less memory: moments = \"bf16\" in trained sections, or a smaller micro_batch";
    if (options.settings.empty()) throw JobError(refusal.what() + less);
    try {
      auto made = planned();
      for (const std::string& setting : options.settings) {
        console.note("chosen    " + setting + ", as the memory of the devices is too small without");
      }
      return made;
    } catch (const ClusterTooSmall& without) {
      std::string with;
      for (const std::string& setting : options.settings) with += (with.empty() ? "" : ", ") + setting;
      throw JobError(without.what() + (", even with " + with) + less);
    }
  }
}

}  // namespace

int plan_on_cluster(const PlanArguments& arguments, Console& console) {
  const DescribedCluster cluster = read_cluster(arguments.cluster);
  const PlannedFile file(arguments);
  PlannedApp job = file.app(console);
  if (!job.generator().empty()) {
    throw JobError("plan --cluster does not price the samples that [" + job.generator() +
                   "] makes: a description of devices tells no time of a continuation; plan without --cluster");
  }
  const ClusterPlannerOptions options = options_of(arguments, job);
  const auto resolve = [&](const std::vector<std::string>& settings) {
    return resolve_emulated(job, cluster, options.planned_speeds, settings);
  };
  const auto [chosen_by, chosen] = choose(resolve, cluster, options, console);
  ClusterPlanner& planner = *chosen_by;
  if (arguments.json) {
    std::cout << json_of(chosen, cluster, planner.base()).dump(-1, ' ', false, Json::error_handler_t::replace)
              << std::endl;
  } else {
    print(chosen, cluster, planner.base(), arguments);
  }
  PlanConfig predicted;
  predicted.predicted_step_ms = chosen.played.step_ms;
  predicted.predicted_passes_ms = passes_ms(chosen.played.shares, chosen.played.step_ms);
  predicted.objective = !arguments.kept.empty()          ? PlanObjective::extra
                        : arguments.objective == "money" ? PlanObjective::money
                                                         : PlanObjective::time;
  if (!arguments.kept.empty()) predicted.keep = {arguments.kept};
  predicted.stall = arguments.stall;
  predicted.headroom = ClusterPlannerOptions().headroom;
  file.write(settings_from(arguments, file, chosen, cluster, console), predicted,
             "Layouts chosen by `maestro plan` for " + cluster.name + ", a description: " +
                 fixed(chosen.played.step_ms, 1) + " ms a step on " + std::to_string(chosen.devices) + " devices.",
             console);
  if (!arguments.page.empty()) {
    write_output(arguments.page, page_of(page_of(chosen, cluster, planner.base()))).or_throw();
    console.note("written   " + printable(arguments.page.string()));
  }
  if (!arguments.timeline.empty()) {
    write_rehearsed_trace(chosen.played.lanes, chosen.played.graph, arguments.timeline).or_throw();
    console.note("written   " + printable(arguments.timeline.string()));
  }
  if (!arguments.curve.empty()) {
    write_output(arguments.curve, cells_text(planner.cells(), cluster, planner.base())).or_throw();
    console.note("written   " + printable(arguments.curve.string()));
  }
  return 0;
}

}  // namespace maestro
