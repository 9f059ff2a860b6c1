// SPDX-License-Identifier: Apache-2.0
// `maestro plan JOB`: chooses the layouts of a job's sections on this machine; `maestro profile JOB` measures the
// calls that these choices need.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/planning/cluster_plan.hpp"
#include "apps/maestro/planning/planned_file.hpp"
#include "apps/maestro/planning/ranking_page.hpp"
#include "apps/plan/planned_job.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/observe/output_file.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/page/markup.hpp"

namespace maestro {

using Json = nlohmann::ordered_json;

namespace {

void add_job_options(CLI::App& command, PlanArguments& arguments) {
  add_plug_in_options(command, arguments.plug_ins);
  command.add_option("--set", arguments.overrides, "override a key: --set train.global_batch=32")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command
      .add_option("--vary", arguments.on_machine.varied,
                  "choose a key that the job gives: student.micro_batch, micro_batch of all sections, or all")
      ->allow_extra_args(false)
      ->type_name("KEY");
  CLI::Option* const processors = command
                                      .add_option("--cpu-devices", arguments.on_machine.cpu_devices,
                                                  "plan for so many CPU devices (default: one per core)")
                                      ->check(whole_number(1, 64));
  command
      .add_option("--devices", arguments.on_machine.gpus,
                  "plan for so many GPUs of this machine (default: all; without GPUs, its CPUs)")
      ->check(whole_number(1, 64))
      ->excludes(processors);
  command
      .add_option("--measure-ms", arguments.on_machine.measure_ms,
                  "measure each layout of a section for so long at least (default 60)")
      ->check(whole_number(0, 60000));
}

Json json_of(const RankingReport& report, const PlannedJob& job) {
  const LayoutRanking& ranking = report.ranking;
  const std::optional<TriedLayouts>& tried = report.tried;
  Json layouts = Json::array();
  for (std::size_t at = 0; at < std::min(ranking.best.size(), report.top); ++at) {
    const RankedLayout& ranked = ranking.best[at];
    Json layout{{"step_ms", ranked.step_ms},
                {"bound_ms", ranked.bound_ms},
                {"bytes", ranked.bytes},
                {"measured_share", ranked.sources.measured_share()},
                {"settings", ranked.settings}};
    if (!report.made.empty()) {
      layout["generator_ms"] = ranked.generator_ms;
      layout["rollout_ms"] = ranked.rollout_ms;
    }
    if (tried && at < tried->step_ms.size()) layout["tried_step_ms"] = tried->step_ms[at];
    layouts.push_back(std::move(layout));
  }
  Json changes = Json::object();
  for (const Alternative& other : ranking.alternatives) changes[other.change] = other.step_ms;
  Json answer{{"devices", job.machine().devices},
              {"compared", ranking.compared},
              {"rehearsed", ranking.rehearsed},
              {"refused", ranking.refused},
              {"filled", ranking.filled},
              {"bound_ms", ranking.least_bound_ms},
              {"layouts", layouts},
              {"alternatives", changes}};
  if (!report.made.empty()) {
    answer["generator"] = {{"section", report.generator},
                           {"samples", report.made.size()},
                           {"length_mean", mean_completion(report.made)},
                           {"lengths", report.lengths.empty() ? "max_tokens" : report.lengths}};
  }
  for (const Certainty& of : report.certain) answer["sure"][of.section] = {of.least, of.most};
  if (tried) answer["tried_spread"] = tried->spread;
  if (job.load()) {
    answer["load"] = {{"core_share", job.load()->core_share}, {"allows_measuring", allows_measuring(*job.load())}};
  }
  return answer;
}

int run_plan(const PlanArguments& arguments, Console& shown) {
  std::ostringstream unseen;
  Console silent({unseen, unseen, false, {}});
  Console& console = arguments.json ? silent : shown;  // only the line of JSON is printed
  if (!arguments.cluster.empty()) return plan_on_cluster(arguments, console);
  const PlannedFile file(arguments);
  PlannedJob job(file.app(console), arguments.on_machine, console);
  const RankingReport report = job.report();
  const RankedLayout& best = chosen_layout(report);
  if (arguments.json) {
    std::cout << json_of(report, job).dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else {
    for (const std::string& line : ranking_lines(report)) PrintedLine() << line;
  }
  file.write(best.settings, prediction_of(best),
             "Layouts chosen by `maestro plan`: " + fixed(best.step_ms, 1) + " ms a step on " + job.machine().text() +
                 "; no layout that was compared takes less than " + fixed(report.ranking.least_bound_ms, 1) + " ms.",
             console);
  if (!arguments.page.empty()) {
    const LaneRehearsal lanes = job.planner().rehearsal(best);
    const PlanPage page = ranking_page(report.title, report.ranking, best, report.global_batch,
                                       timeline_of(lanes.rehearsed, lanes.graph));
    write_output(arguments.page, page_of(page)).or_throw();
    console.note("written   " + printable(arguments.page.string()));
  }
  return 0;
}

int run_profile(const PlanArguments& arguments, Console& console) {
  const PlannedFile file(arguments);
  PlannedJob job(file.app(console), arguments.on_machine, console);
  job.measure();
  console.note(std::to_string(job.prices().alone.measured().size()) + " calls have prices in " +
               printable(arguments.on_machine.profile.string()));
  return 0;
}

}  // namespace

void add_plan(Commands& commands) {
  const auto [command, arguments] = commands.add("plan", "choose the layouts of a job on this machine", run_plan);
  command.add_option("job", arguments.job, "job file (TOML) whose layouts are chosen")->required();
  command.add_flag("--json", arguments.json, "print the answer as a line of JSON");
  add_job_options(command, arguments);
  command.add_option("--profile", arguments.on_machine.profile,
                     "prices of calls: read if it exists, and written with new measurements");
  command
      .add_option("--lengths", arguments.on_machine.lengths,
                  "run whose made samples have the lengths to plan with (default: the most tokens that they may have)")
      ->type_name("RUN");
  command.add_option("--top", arguments.on_machine.top, "layouts to print (default 5)")->check(whole_number(1, 1000));
  command.add_option("--out", arguments.out, "write the job with the best layout here");
  command.add_option("--page", arguments.page, "write a page with the plan here");
  command.add_option("--try", arguments.on_machine.tries, "also run so many of the best layouts, in turn")
      ->check(whole_number(1, 100));
  CLI::Option* const cluster =
      command.add_option("--cluster", arguments.cluster, "plan for the devices that this file describes");
  for (const char* const of_machine :
       {"--profile", "--try", "--lengths", "--cpu-devices", "--devices", "--measure-ms"}) {
    cluster->excludes(command.get_option(of_machine));
  }
  CLI::Option* const extra =
      command
          .add_option("--extra", arguments.kept,
                      "the critical section, which keeps its devices; others get the fewest that keep it busy")
          ->type_name("SECTION")
          ->needs(cluster);
  command.add_option("--stall", arguments.stall, "share of the time that the critical section may wait (default 0.01)")
      ->check(decimal_number(0.0001, 0.9))
      ->needs(cluster);
  CLI::Option* const objective = command
                                     .add_option("--objective", arguments.objective,
                                                 "choose the fastest step (time, the default) or the cheapest (money)")
                                     ->check(CLI::IsMember({"time", "money"}))
                                     ->needs(cluster);
  objective->excludes(extra);
  command.add_option("--budget", arguments.most_per_hour, "highest price of all hosts an hour")
      ->check(decimal_number(1e-6, 1e12))
      ->needs(cluster);
  command
      .add_option("--curve", arguments.curve,
                  "write the fastest layouts on 1, 2, 4, ... devices of each pool, for schedulers")
      ->type_name("FILE")
      ->needs(cluster);
  command.add_option("--from", arguments.from, "keep most hosts and devices of this job, which plan has written")
      ->type_name("JOB")
      ->needs(cluster);
  command.add_option("--timeline", arguments.timeline, "write the rehearsed lanes here, for Perfetto")->needs(cluster);
  command.add_option("--steps", arguments.on_machine.steps, "steps of each run by --try (default 20)")
      ->check(whole_number(6, 100000));
}

void add_profile(Commands& commands) {
  const auto [command, arguments] =
      commands.add("profile", "measure the calls of a job's layouts on this machine, for plan", run_profile);
  command.add_option("job", arguments.job, "job file (TOML)")->required();
  add_job_options(command, arguments);
  arguments.on_machine.profile = "profile.json";
  command.add_option("--out", arguments.on_machine.profile,
                     "file of the prices, which keeps its old prices (default profile.json)");
}

}  // namespace maestro
