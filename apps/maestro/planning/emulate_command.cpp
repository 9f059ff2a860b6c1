// SPDX-License-Identifier: Apache-2.0
// `maestro emulate WORKLOAD`: a workload file on emulated devices.
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "actors/process/app.hpp"
#include "apps/emulate/compose.hpp"
#include "apps/emulate/workload_rehearsal.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/run/run_options.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/rehearsal/rehearsed_shares.hpp"
#include "runtime/wavefront/policy.hpp"
#include "runtime/wavefront/workload_file.hpp"

namespace maestro {

namespace {

struct EmulateArguments {
  std::filesystem::path workload;  ///< JSON, see docs/workloads.md
  std::string policy = "wavefront";
  std::int64_t steps = 10;
  std::int64_t columns = 64;  ///< floats that a sample sends over an edge
  std::int64_t evaluations = 0;
  std::vector<std::string> overrides;  ///< settings of the emulated job: "vision.replicas=7"
  bool rehearse = false;               ///< in virtual time, without actors
  std::vector<std::string> free;       ///< sections whose rehearsed passes take no time
  std::vector<std::string> constants;  ///< "teacher=40": constant overhead per rehearsed pass in milliseconds
  double noise = 0;                    ///< RehearsalChange::noise
  std::uint64_t seed = 0;              ///< seed of the noise
  RunOptions run;
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Utilisation of a run: steps overlap, so it is not the mean over steps.
struct Shares {
  std::map<std::string, double> measured;
  std::map<std::string, double> planned;
  double run_ms = 0;
  double planned_ms = 0;
};

Shares shares_of(const std::vector<SchedulingRow>& rows) {
  Shares shares;
  double begin = 0;
  double end = 0;
  for (const SchedulingRow& row : rows) {
    if (&row == &rows.front()) begin = row.begin_ms;
    begin = std::min(begin, row.begin_ms);
    end = std::max(end, row.begin_ms + row.makespan_ms);
    shares.planned_ms += row.planned_ms;
    for (const auto& [section, share] : row.utilization) shares.measured[section] += share * row.makespan_ms;
    for (const auto& [section, share] : row.planned_utilization) shares.planned[section] += share * row.planned_ms;
  }
  shares.run_ms = end - begin;
  for (auto& [section, busy] : shares.measured) busy /= std::max(shares.run_ms, 1e-9);
  for (auto& [section, busy] : shares.planned) busy /= std::max(shares.planned_ms, 1e-9);
  return shares;
}

int rehearse(const EmulateArguments& arguments, App app, Console& console) {
  const ResolvedJob plan = app.plan();
  refuse_rollouts(plan, "emulate does not price the samples that");
  std::set<std::string> sections;
  for (const GraphNode& node : plan.graph.nodes()) {
    if (node.plays_in_steps()) sections.insert(node.section_name());
  }
  const auto known = [&](const std::string& option, const std::string& name) {
    if (sections.contains(name)) return;
    const auto nearest = nearest_name(name, std::vector<std::string>(sections.begin(), sections.end()));
    throw JobError(option + " " + printable(name) + ": not a section of the workload" +
                   (nearest ? "; did you mean " + *nearest + "?" : ""));
  };
  RehearsalChange change;
  for (const std::string& name : arguments.free) {
    known("--free", name);
    change.faster[name] = std::numeric_limits<double>::infinity();
  }
  change.noise = arguments.noise;
  change.seed = arguments.seed;
  PassConstants constants;
  for (const std::string& given : arguments.constants) {
    const std::size_t equals = std::min(given.find('='), given.size());
    known("--constant-ms", given.substr(0, equals));
    double& ms = constants[given.substr(0, equals)];
    const char* const end = given.data() + given.size();
    const auto [at, failure] = std::from_chars(given.data() + std::min(equals + 1, given.size()), end, ms);
    if (failure == std::errc() && at == end && ms >= 0 && std::isfinite(ms)) continue;
    throw JobError("--constant-ms " + printable(given) + ": write a section and milliseconds, such as " +
                   *sections.begin() + "=40");
  }
  const SteadyRehearsal steady = rehearse_workload(plan, arguments.steps, constants, change).value_or_throw();
  nlohmann::ordered_json shares = nlohmann::ordered_json::object();
  for (const auto& [section, share] : section_shares(steady.rehearsed, plan.graph, steady.time)) {
    shares[section] = {{"passes", share.passes}, {"waits", share.waits}};
  }
  const nlohmann::ordered_json answer = {{"policy", plan.schedule.policy},
                                         {"steps", steady.time.steps},
                                         {"step_ms", steady.time.period_ms()},
                                         {"sections", shares}};
  console.answer(answer.dump());
  return 0;
}

int run_emulate(const EmulateArguments& arguments, Console& console) {
  (void)make_policy(arguments.policy);  // an unknown name is refused as such, not as a line of the generated job
  EmulationSettings settings;
  settings.policy = arguments.policy;
  settings.steps = arguments.steps;
  settings.columns = arguments.columns;
  settings.evaluations = arguments.evaluations;
  const auto corpus =
      std::make_shared<const WorkloadCorpus>(load_workload(arguments.workload), arguments.workload.string());
  if (const std::string note = note_on_slots(*corpus); !note.empty()) console.warning(note);
  RunOptions run = arguments.run;
  run.command = {"emulate", arguments.workload.string(),    "--policy",  settings.policy,
                 "--steps", std::to_string(settings.steps), "--columns", std::to_string(settings.columns)};
  const std::vector<std::string> log = log_arguments(run.log_format);
  run.command.insert(run.command.end(), log.begin(), log.end());
  for (const std::string& setting : arguments.overrides) run.command.insert(run.command.end(), {"--set", setting});
  run.check_only = arguments.rehearse;
  App app(JobDocument::parse(emulation_job(*corpus, settings), "emulation of " + arguments.workload.string(),
                             arguments.overrides),
          std::move(run), console);
  compose_emulation(app, corpus);
  if (arguments.rehearse) return rehearse(arguments, std::move(app), console);
  const double cpu_before = cpu_seconds();
  const RunResult result = app.run();
  if (result.status != 0 || result.scheduling.empty()) return result.status;

  const Shares shares = shares_of(result.scheduling);
  const auto critical = std::ranges::max_element(shares.planned, {}, [](const auto& entry) { return entry.second; });
  const double tokens =
      static_cast<double>(corpus->workload().tasks.size()) * static_cast<double>(result.scheduling.size());
  nlohmann::ordered_json answer = {{"policy", settings.policy},
                                   {"steps", result.scheduling.size()},
                                   {"run_ms", shares.run_ms},
                                   {"planned_makespans_ms", shares.planned_ms},
                                   {"utilization", shares.measured},
                                   {"planned_utilization", shares.planned},
                                   {"critical_section", critical->first},
                                   {"share_of_plan", shares.measured.at(critical->first) / critical->second},
                                   {"tokens", tokens},
                                   {"tokens_per_s", tokens / shares.run_ms * 1000},
                                   {"cpu_us_per_token", (cpu_seconds() - cpu_before) * 1e6 / tokens}};
  console.answer(answer.dump());
  return 0;
}

}  // namespace

void add_emulate(Commands& commands) {
  const auto [command, arguments] =
      commands.add("emulate", "run a workload on emulated devices, with real actors", run_emulate);
  command.add_option("workload", arguments.workload, "workload file (JSON, see docs/workloads.md)")->required();
  command.add_option("--policy", arguments.policy, "arrival, bulk_synchronous or wavefront");
  command.add_option("--steps", arguments.steps, "how often the workload is run")->check(whole_number(1));
  command.add_option("--columns", arguments.columns, "floats that a sample sends over an edge")->check(whole_number(1));
  command.add_option("--evaluations", arguments.evaluations, "schedules that a plan tries; 0: by the workload's size")
      ->check(whole_number(0));
  command.add_option("--set", arguments.overrides, "override a key of the emulated job: --set vision.replicas=7")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  CLI::Option* const rehearse =
      command.add_flag("--rehearse", arguments.rehearse, "in virtual time, without actors: how long steps take");
  command.add_option("--free", arguments.free, "a section whose passes take no time")
      ->type_name("SECTION")
      ->needs(rehearse);
  command.add_option("--constant-ms", arguments.constants, "constant overhead per pass in milliseconds")
      ->type_name("SECTION=MS")
      ->needs(rehearse);
  CLI::Option* const noise = command
                                 .add_option("--noise", arguments.noise,
                                             "random variation in pass times, as a standard deviation in logarithms")
                                 ->check(decimal_number(0, 2))
                                 ->needs(rehearse);
  command.add_option("--seed", arguments.seed, "another draw of the noise")->check(seed_number())->needs(noise);
  add_run_options(command, arguments.run);
}

}  // namespace maestro
