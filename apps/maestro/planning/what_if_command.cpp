// SPDX-License-Identifier: Apache-2.0
// `maestro what-if TRACE`: how long the steps of a traced run would have taken with changes.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "actors/job/job_rehearsal.hpp"
#include "actors/job/traced_rollouts.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/run/plug_in_option.hpp"
#include "apps/maestro/run/recorded_job.hpp"
#include "apps/plan/collective_times.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/observe/padded.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/page/markup.hpp"
#include "runtime/rehearsal/rehearsed_shares.hpp"
#include "runtime/rehearsal/rehearsed_trace.hpp"

namespace maestro {

namespace {

struct WhatIfArguments {
  std::filesystem::path trace;
  std::vector<std::string> overrides;  ///< settings as for train --set
  PlugInChoice plug_ins;
  std::vector<std::string> faster;  ///< "student=2"
  std::vector<std::string> free;    ///< sections whose passes take no time
  double latency_ms = 0;
  std::int64_t processes = 0;      ///< 0: as traced
  std::filesystem::path timeline;  ///< the last rehearsal, for Perfetto; empty: not written
  bool json = false;
};

using Json = nlohmann::ordered_json;

/// The keys outside sections that affect a rehearsal. Samples, steps and times come from the trace.
constexpr std::array<std::string_view, 7> rehearsed_keys{
    "train.ahead",          "train.clip",   "train.deterministic", "schedule.policy",
    "schedule.evaluations", "guard.action", "transport.slots"};
/// The keys of a generator that affect a rehearsal; its samples and times come from the trace.
constexpr std::array<std::string_view, 5> keys_of_rollouts{"staleness", "slots", "replicas", "devices", "processes"};
/// The keys of sections that change the time of a pass by more than its FLOPs.
constexpr std::array<std::string_view, 3> keys_of_times{"precision", "share", "moments"};

std::string joined(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view each : words) text += (text.empty() ? "" : ", ") + std::string(each);
  return text;
}

std::int64_t fact(const TracedRun& run, const std::string& key) {
  std::int64_t value = 0;
  const auto found = run.facts.find(key);
  if (found == run.facts.end()) return 0;
  std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  return value;
}

/// Returns "host-0:2,host-1:1", or nothing if all processes are on a host. Throws JobError.
std::string hosts_of(const TracedRun& run) {
  const auto found = run.facts.find("hosts");
  std::string_view rest = found == run.facts.end() ? std::string_view() : found->second;
  std::vector<std::pair<std::string, std::int64_t>> processes;
  while (!rest.empty()) {
    const std::string host(rest.substr(0, rest.find(',')));
    if (processes.empty() || processes.back().first != host) {
      if (std::ranges::find(processes, host, &decltype(processes)::value_type::first) != processes.end()) {
        throw JobError("the traced run's processes alternate between its hosts, which what-if cannot place; give " +
                       std::string("--processes, or trace a run with consecutive processes on each host"));
      }
      processes.emplace_back(host, 0);
    }
    ++processes.back().second;
    rest.remove_prefix(std::min(host.size() + 1, rest.size()));
  }
  if (processes.size() < 2) return {};
  std::string text;
  for (const auto& [host, count] : processes) {
    text += (text.empty() ? "host-" : ",host-") + host + ":" + std::to_string(count);
  }
  return text;
}

/// A job in virtual time.
struct PlayedJob {
  ResolvedJob plan;
  std::vector<TracedUnit> units;  // with made samples, if the job generates
  std::vector<StepPlan> plans;
  Rehearsed rehearsed;
  SteadySteps time;
  PassSources sources;
  std::vector<std::string> collectives;  // sections with assumed collectives
};

SteadySteps steady(const std::vector<double>& unit_ends, const TracedRun& run, const std::string& trace) {
  std::vector<double> ends;
  for (std::size_t unit = 0; unit < run.units.size(); ++unit) {
    if (run.units[unit].pass == Pass::train) ends.push_back(unit_ends[unit]);
  }
  const std::optional<SteadySteps> time = steady_steps(ends);
  if (time) return *time;
  throw JobError(trace + " has " + std::to_string(ends.size()) +
                 " whole training steps; what-if needs 4 or more, as it leaves out the first 2");
}

class WhatIf {
 public:
  WhatIf(const WhatIfArguments& arguments, Console& console)
      : arguments_(arguments), console_(console), run_(read_traced_run(arguments.trace).value_or_throw()) {
    std::vector<double> ends;
    for (const TracedUnit& unit : run_.units) ends.push_back(unit.end_ms);
    traced_ = steady(ends, run_, arguments.trace.string());
  }

  int run() {
    PlayedJob base;
    base.plan = plan_of({}, 0);
    check_units(base.plan);
    base.units = units_of(base.plan);
    // Passes on devices that shared a core took longer in the trace.
    if (const std::int64_t cores = fact(run_, "cores"); !shares_cores(base.plan, cores)) cores_ = cores;
    base.plans = plans_of(base.plan, run_.units, nullptr).value_or_throw();
    TracedTimes times(run_, timed_job(base.plan), base.plans);
    if (!base.plan.train.deterministic) {  // its plans followed the measured times
      const JobTimes known = traced_job_times(base.plan, run_, times);
      base.plans = plans_of(base.plan, run_.units, &known).value_or_throw();
      times = TracedTimes(run_, timed_job(base.plan), base.plans);
    }
    play(base, traced_job_times(base.plan, run_, times), times, {});
    const std::set<std::string> sections = sections_of(base.plan);
    const std::string generator = generates(base.plan) ? base.plan.rollouts->name : "";
    for (const std::string& setting : arguments_.overrides) check_rehearsed(setting, sections, generator);
    const RehearsalChange change = change_of(sections);
    std::optional<PlayedJob> changed;
    if (changes()) {
      changed.emplace().plan = plan_of(arguments_.overrides, arguments_.processes);
      check_same_devices(base.plan, changed->plan);
      check_latency(changed->plan);
      changed->units = units_of(changed->plan);
      const CollectiveTimes collectives(base.plan, changed->plan);
      changed->collectives = collectives.sections();
      const JobTimes known = collectives.added_to(traced_job_times(changed->plan, run_, times));
      changed->plans = plans_of(changed->plan, run_.units, &known).value_or_throw();
      play(*changed, known, times, change);
    }
    if (!arguments_.timeline.empty()) {
      const PlayedJob& last = changed ? *changed : base;
      write_rehearsed_trace(last.rehearsed, last.plan.graph, arguments_.timeline).or_throw();
    }
    arguments_.json ? print_json(base, changed) : print(base, changed);
    return 0;
  }

 private:
  [[nodiscard]] bool changes() const {
    return !arguments_.overrides.empty() || !arguments_.faster.empty() || !arguments_.free.empty() ||
           arguments_.latency_ms > 0 || arguments_.processes > 0;
  }

  ResolvedJob plan_of(const std::vector<std::string>& overrides, std::int64_t processes) {
    RunOptions options;
    options.check_only = true;
    options.quiet = true;
    options.cpu_devices = fact(run_, "cpu_devices");
    options.hosts = processes > 0 ? "" : hosts_of(run_);
    options.processes = processes > 0 ? processes : options.hosts.empty() ? fact(run_, "processes") : 1;
    JobDocument job =
        job_document(run_.facts.at("job"), "the job in " + arguments_.trace.string(), overrides, arguments_.plug_ins);
    ResolvedJob plan = job_app(std::move(job), std::move(options), console_).plan();
    return plan;
  }

  [[nodiscard]] std::vector<TracedUnit> units_of(const ResolvedJob& plan) const {
    return generates(plan) ? with_rollouts(plan, run_.units, arguments_.trace.string()) : run_.units;
  }

  [[nodiscard]] std::optional<GenerationTimes> generation_of(const ResolvedJob& plan) const {
    if (!generates(plan)) return std::nullopt;
    if (std::optional<GenerationTimes> times = generation_times(run_.generation)) return times;
    throw JobError(
        arguments_.trace.string() + " lacks the work of [" + plan.rollouts->name +
        "]: a version that is read, a prompt, and steps with numbers of sequences; write a trace with this " +
        "version of maestro (train --trace FILE)");
  }

  /// Rehearses a job. `times`: the times that `known` refers to.
  void play(PlayedJob& job, JobTimes known, const TracedTimes& times, const RehearsalChange& change) {
    const PassSources before = times.sources();
    known.cores = cores_;
    known.generation = generation_of(job.plan);
    job.rehearsed = rehearse(job.plan, job.units, job.plans, known, change).value_or_throw();
    job.sources = {times.sources().traced - before.traced, times.sources().estimated - before.estimated};
    std::vector<double> ends;
    std::size_t at = 0;
    for (const TracedUnit& unit : run_.units) {
      ends.push_back(job.rehearsed.unit_ends_ms[at]);
      at += unit.checkpoint ? 2 : 1;
    }
    job.time = steady(ends, run_, arguments_.trace.string());
  }

  /// A damaged trace may have any number of samples, and planning time grows with it.
  void check_units(const ResolvedJob& plan) const {
    for (const TracedUnit& unit : run_.units) {
      const std::int64_t most = unit.pass == Pass::train ? plan.train.global_batch : plan.validation_samples;
      if (std::ssize(unit.samples) <= most) continue;
      throw JobError(arguments_.trace.string() + ": step " + std::to_string(unit.step.value()) + " has " +
                     std::to_string(unit.samples.size()) + " samples, and the job at most " + std::to_string(most) +
                     "; the trace is damaged, or of other data");
    }
  }

  void check_latency(const ResolvedJob& plan) const {
    if (arguments_.latency_ms <= 0 || plan.options.processes > 1) return;
    throw JobError(
        "--latency-ms is between processes, and the job has one; add --processes, or trace a run of several");
  }

  /// Refuses a key whose change a rehearsal would ignore.
  static void check_rehearsed(const std::string& setting, const std::set<std::string>& sections,
                              const std::string& generator) {
    const std::string key = setting.substr(0, setting.find('='));
    const std::string table = key.substr(0, key.find('.'));
    const std::string name = key.substr(key.rfind('.') + 1);
    const std::string given = "--set " + printable(setting);
    if (!generator.empty() && table == generator) {
      if (std::ranges::find(keys_of_rollouts, name) != keys_of_rollouts.end()) return;
      throw JobError(given + ": the samples and their times come from the trace; of [" + generator +
                     "] what-if takes " + joined(keys_of_rollouts));
    }
    if (sections.contains(table)) {
      if (std::ranges::find(keys_of_times, name) == keys_of_times.end()) return;
      throw JobError(given + ": pass times come from the trace, at its " + name + "; trace a run with it");
    }
    if (std::ranges::find(rehearsed_keys, key) != rehearsed_keys.end()) return;
    throw JobError(given + ": samples, steps and times come from the trace; outside sections what-if takes " +
                   joined(rehearsed_keys));
  }

  static void check_same_devices(const ResolvedJob& was, const ResolvedJob& is) {
    for (const ReplicaPlacement& place : is.places) {
      const GraphNode& node = is.graph.node(place.section);
      const auto before = was.graph.find(node.name);
      const auto* old = before ? find_place(was.places, *before, ReplicaIndex(0)) : nullptr;
      if (old == nullptr || old->devices.front().kind == place.devices.front().kind) continue;
      throw JobError(node.section_name() + ".devices: " + text_of(place.devices.front()) + " is of another kind than " +
                     text_of(old->devices.front()) + " in the trace, the only source of times; trace a run on it");
    }
  }

  static std::set<std::string> sections_of(const ResolvedJob& plan) {
    std::set<std::string> names;
    for (const GraphNode& node : plan.graph.nodes()) {
      if (node.role != Role::source) names.insert(node.section_name());
    }
    return names;
  }

  RehearsalChange change_of(const std::set<std::string>& names) const {
    RehearsalChange change;
    change.latency_ms = arguments_.latency_ms;
    const auto known = [&](const std::string& option, const std::string& name) {
      if (names.contains(name)) return;
      const std::vector<std::string> all(names.begin(), names.end());
      const auto nearest = nearest_name(name, all);
      throw JobError(option + " " + printable(name) + ": not a section of the job; " +
                     (nearest ? "did you mean " + *nearest + "?" : "its first is " + all.front()));
    };
    for (const std::string& given : arguments_.faster) {
      const std::size_t equals = given.find('=');
      const std::string name = given.substr(0, equals);
      const char* const end = given.data() + given.size();
      double factor = 0;
      if (equals != std::string::npos) {
        const auto [at, failure] = std::from_chars(given.data() + equals + 1, end, factor);
        if (failure != std::errc() || at != end || !std::isfinite(factor)) factor = 0;
      }
      if (!(factor > 0)) {
        throw JobError("--faster " + printable(given) + ": write a section and how many times as fast, such as " +
                       *names.begin() + "=2");
      }
      known("--faster", name);
      change.faster[name] = factor;
    }
    for (const std::string& name : arguments_.free) {
      known("--free", name);
      change.faster[name] = std::numeric_limits<double>::infinity();
    }
    return change;
  }

  static std::string sources_text(const PassSources& sources) {
    return "times of " + std::to_string(sources.traced) + " passes from the trace, " +
           std::to_string(sources.estimated) + " estimated";
  }

  void print(const PlayedJob& base, const std::optional<PlayedJob>& changed) const {
    PrintedLine() << "trace     " << printable(arguments_.trace.string()) << ": " << base.time.steps
                  << " steps after the first 2"
                  << (run_.dropped > 0 ? "; " + std::to_string(run_.dropped) + " events were dropped" : "");
    const double error = base.time.period_ms() / traced_.period_ms() - 1;
    PrintedLine() << "replay    " << fixed(base.time.period_ms(), 1) << " ms a step; in the trace "
                  << fixed(traced_.period_ms(), 1) << " ms: " << percent(std::abs(error)) << " "
                  << (error < 0 ? "below" : "above") << "; " << sources_text(base.sources);
    if (changed) {
      const double ratio = base.time.period_ms() / changed->time.period_ms();
      PrintedLine() << "changed   " << fixed(changed->time.period_ms(), 1) << " ms a step, " << fixed(ratio, 2)
                    << " times as fast as the replay; " << sources_text(changed->sources);
      for (const std::string& section : changed->collectives) {
        PrintedLine() << "assumed   collectives of " << section << ": " << fixed(assumed_link.bytes_per_ms / 1e6, 0)
                      << " GB/s and " << fixed(1e3 * assumed_link.latency_ms, 0)
                      << " us a call, as its ranks had none in the trace; maestro plan measures them";
      }
    }
    PrintedLine() << "";
    print_shares("replay", base);
    if (changed) print_shares("changed", *changed);
    std::cout.flush();
  }

  static void print_shares(const std::string& name, const PlayedJob& job) {
    const auto sections = section_shares(job.rehearsed, job.plan.graph, job.time);
    std::size_t width = name.size();
    for (const auto& [section, shares] : sections) width = std::max(width, section.size());
    PrintedLine() << padded(name, width + 2) << "passes  step end  waits for";
    for (const auto& [section, shares] : sections) {
      std::vector<std::pair<double, std::string>> waits;
      for (const auto& [reason, share] : shares.waits) waits.emplace_back(share, reason);
      std::ranges::sort(waits, std::greater());
      std::string text;
      for (const auto& [share, reason] : waits) {
        if (share < 0.005) continue;
        text += (text.empty() ? "" : ", ") + reason + " " + percent(share, 0);
      }
      PrintedLine() << padded(section, width + 2) << padded(percent(shares.passes, 0), 8)
                    << padded(percent(shares.step_ends, 0), 10) << (text.empty() ? "nothing" : text);
    }
  }

  static Json shares_json(const PlayedJob& job) {
    Json sections = Json::object();
    for (const auto& [section, shares] : section_shares(job.rehearsed, job.plan.graph, job.time)) {
      sections[section] = {{"passes", shares.passes}, {"step_ends", shares.step_ends}, {"waits", shares.waits}};
    }
    return {{"step_ms", job.time.period_ms()}, {"sections", sections}};
  }

  void print_json(const PlayedJob& base, const std::optional<PlayedJob>& changed) const {
    Json result{{"trace", arguments_.trace.string()},
                {"steps", base.time.steps},
                {"dropped_events", run_.dropped},
                {"traced", {{"step_ms", traced_.period_ms()}}},
                {"replay", shares_json(base)}};
    if (changed) {
      result["changed"] = shares_json(*changed);
      result["changed"]["assumed_collectives"] = changed->collectives;
    }
    std::cout << result.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }

  const WhatIfArguments& arguments_;
  Console& console_;
  TracedRun run_;
  SteadySteps traced_;
  std::int64_t cores_ = 0;  // JobTimes
};

int run_what_if(const WhatIfArguments& arguments, Console& console) {
  return WhatIf(arguments, console).run();
}

}  // namespace

void add_what_if(Commands& commands) {
  const auto [command, arguments] =
      commands.add("what-if", "how long the steps of a traced run would take with changes", run_what_if);
  command.add_option("trace", arguments.trace, "trace of a run (train --trace FILE)")->required();
  add_plug_in_options(command, arguments.plug_ins);
  command.add_option("--set", arguments.overrides, "change a key of the job, such as teacher.replicas=2")
      ->type_name("KEY=VALUE");
  command.add_option("--faster", arguments.faster, "a section whose passes take a fraction of their time")
      ->type_name("SECTION=TIMES");
  command.add_option("--free", arguments.free, "a section whose passes take no time")->type_name("SECTION");
  command.add_option("--latency-ms", arguments.latency_ms, "more latency between processes")
      ->check(decimal_number(0.0, 1e6));
  command.add_option("--processes", arguments.processes, "processes of the job (default: as traced)")
      ->check(whole_number(1, 4096));
  command.add_option("--timeline", arguments.timeline, "also write the rehearsed lanes here, for Perfetto");
  command.add_flag("--json", arguments.json, "print the figures as JSON");
}

}  // namespace maestro
