// SPDX-License-Identifier: Apache-2.0
// `maestro plan JOB`: chooses the layouts of a job's sections on this machine; `maestro profile JOB` measures the
// calls that these choices need.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "actors/job/memory_estimate.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/padded.hpp"
#include "apps/maestro/planning/cluster_plan.hpp"
#include "apps/maestro/planning/cluster_rivals.hpp"
#include "apps/maestro/planning/planned_job.hpp"
#include "apps/maestro/planning/ranking_page.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/quantile.hpp"
#include "runtime/core/scratch_folder.hpp"
#include "runtime/observe/output_file.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/page/markup.hpp"

namespace maestro {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr int rounds_of_tries = 2;

void add_job_options(CLI::App& command, PlanArguments& arguments) {
  add_plug_in_options(command, arguments.plug_ins);
  command.add_option("--set", arguments.overrides, "override a key: --set train.global_batch=32")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command
      .add_option("--vary", arguments.varied,
                  "choose a key that the job gives: student.micro_batch, micro_batch of all sections, or all")
      ->allow_extra_args(false)
      ->type_name("KEY");
  CLI::Option* const processors =
      command
          .add_option("--cpu-devices", arguments.cpu_devices, "plan for so many CPU devices (default: one per core)")
          ->check(whole_number(1, 64));
  command
      .add_option("--devices", arguments.gpus,
                  "plan for so many GPUs of this machine (default: all; without GPUs, its CPUs)")
      ->check(whole_number(1, 64))
      ->excludes(processors);
  command
      .add_option("--measure-ms", arguments.measure_ms,
                  "measure each layout of a section for so long at least (default 60)")
      ->check(whole_number(0, 60000));
}

/// The layouts that were also run.
struct Tried {
  std::vector<double> step_ms;  ///< medians by layout
  double spread = 0;            ///< larger median of the first layout's rounds over the smaller, less 1
};

Tried try_layouts(PlannedJob& job, std::vector<RankedLayout>& best, const PlanArguments& arguments, Console& console) {
  const auto count = std::min(best.size(), static_cast<std::size_t>(arguments.tries));
  const ScratchFolder scratch(fs::temp_directory_path(), "maestro-plan", "set TMPDIR");
  std::vector<std::vector<double>> times(count);
  std::vector<double> first;
  for (int round = 0; round < rounds_of_tries; ++round) {
    for (std::size_t at = 0; at < count; ++at) {
      console.note("running   layout " + std::to_string(at + 1) + ", round " + std::to_string(round + 1));
      const std::vector<double> more = job.run(best[at].settings, arguments.steps, scratch.path());
      if (at == 0) first.push_back(quantile_of(more, 0.5));
      times[at].insert(times[at].end(), more.begin(), more.end());
    }
  }
  Tried tried;
  for (const auto& each : times) tried.step_ms.push_back(quantile_of(each, 0.5));
  tried.spread = *std::ranges::max_element(first) / *std::ranges::min_element(first) - 1;
  return tried;
}

class Printed {
 public:
  Printed(const PlannedJob& job, const LayoutRanking& ranking, const std::optional<Tried>& tried,
          std::vector<Certainty> certain)
      : job_(job), ranking_(ranking), tried_(tried), certain_(std::move(certain)) {}

  void text(std::int64_t top) const {
    const RankedLayout& best = ranking_.best.front();
    PrintedLine() << job_.title() << ": " << ranking_.priced << " layouts of sections, " << ranking_.compared
                  << " of the job, " << ranking_.rehearsed
                  << " rehearsed. Times: " << percent(best.sources.measured_share())
                  << " measured, the rest estimated.";
    table(static_cast<std::size_t>(top));
    PrintedLine() << "bound     no layout of these can do a step in less than " << fixed(ranking_.least_bound_ms, 1)
                  << " ms; the choice is " << percent(best.step_ms / ranking_.least_bound_ms - 1) << " above";
    critical(best);
    std::string reasons;
    std::set<std::string> seen;  // keys: each with its best other value
    for (const Alternative& other : ranking_.alternatives) {
      if (!seen.insert(other.change.substr(0, other.change.find(' '))).second) continue;
      reasons += (reasons.empty() ? "" : "; ") + other.change + ": " + signed_percent(other.step_ms / best.step_ms - 1);
    }
    if (!reasons.empty()) PrintedLine() << "why not   " << reasons;
    if (ranking_.filled > 0) {
      PrintedLine() << "share     not tried: without it the sections reach " << percent(ranking_.filled)
                    << " of the GPU's best rates, more than on shares of the GPU";
    }
    sure();
    for (const std::string& setting : best.more) PrintedLine() << "run       " << setting;
    if (ranking_.refused > 0) {
      PrintedLine() << "refused   " << ranking_.refused << " layouts, the first: " << printable(ranking_.first_refusal);
    }
    if (tried_) {
      PrintedLine() << "tried     the same layout differed by " << percent(tried_->spread) << " between rounds";
    }
  }

  [[nodiscard]] Json json(std::int64_t top) const {
    Json layouts = Json::array();
    for (std::size_t at = 0; at < std::min(ranking_.best.size(), static_cast<std::size_t>(top)); ++at) {
      const RankedLayout& ranked = ranking_.best[at];
      Json layout{{"step_ms", ranked.step_ms},
                  {"bound_ms", ranked.bound_ms},
                  {"bytes", ranked.bytes},
                  {"measured_share", ranked.sources.measured_share()},
                  {"settings", ranked.settings}};
      if (tried_ && at < tried_->step_ms.size()) layout["tried_step_ms"] = tried_->step_ms[at];
      layouts.push_back(std::move(layout));
    }
    Json changes = Json::object();
    for (const Alternative& other : ranking_.alternatives) changes[other.change] = other.step_ms;
    Json answer{{"devices", job_.machine().devices},
                {"compared", ranking_.compared},
                {"rehearsed", ranking_.rehearsed},
                {"refused", ranking_.refused},
                {"filled", ranking_.filled},
                {"bound_ms", ranking_.least_bound_ms},
                {"layouts", layouts},
                {"alternatives", changes}};
    for (const Certainty& of : certain_) answer["sure"][of.section] = {of.least, of.most};
    if (tried_) answer["tried_spread"] = tried_->spread;
    if (job_.load()) {
      answer["load"] = {{"core_share", job_.load()->core_share}, {"allows_measuring", allows_measuring(*job_.load())}};
    }
    return answer;
  }

 private:
  void table(std::size_t top) const {
    std::vector<std::string> names;
    for (const auto& [name, layout] : ranking_.best.front().sections) names.push_back(name);
    std::vector<std::vector<std::string>> rows{{" #", "step ms", "samples/s", "MiB"}};
    if (tried_) rows[0].emplace_back("tried ms");
    rows[0].insert(rows[0].end(), names.begin(), names.end());
    for (std::size_t at = 0; at < std::min(top, ranking_.best.size()); ++at) {
      const RankedLayout& ranked = ranking_.best[at];
      const double rate = static_cast<double>(job_.base().train.global_batch) / ranked.step_ms * 1e3;
      std::vector<std::string> row{(at < 9 ? " " : "") + std::to_string(at + 1), fixed(ranked.step_ms, 1),
                                   fixed(rate, 1), fixed(ranked.bytes / (1 << 20), 0)};
      if (tried_) row.push_back(at < tried_->step_ms.size() ? fixed(tried_->step_ms[at], 1) : "");
      for (const std::string& name : names) {
        row.push_back(placed_text(ranked, name));
      }
      rows.push_back(std::move(row));
    }
    std::vector<std::size_t> widths(rows[0].size());
    for (const auto& row : rows) {
      for (std::size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], row[at].size() + 2);
    }
    for (const auto& row : rows) {
      std::string line;
      for (std::size_t at = 0; at < row.size(); ++at) line += padded(row[at], widths[at]);
      PrintedLine() << line.substr(0, line.find_last_not_of(' ') + 1);
    }
  }

  void sure() const {
    PrintedLine() << "stable    best choice while pass times stay within: " << certainty_text(certain_);
  }

  static void critical(const RankedLayout& best) {
    const auto busiest = std::ranges::max_element(
        best.shares, {}, [](const auto& entry) { return entry.second.passes + entry.second.step_ends; });
    std::string waits;
    for (const auto& [reason, share] : busiest->second.waits) {
      if (share >= 0.005) waits += (waits.empty() ? "" : ", ") + reason + " " + percent(share);
    }
    PrintedLine() << "critical  " << busiest->first << " is in passes " << percent(busiest->second.passes)
                  << " of the time and at step ends " << percent(busiest->second.step_ends) << "; it waits for "
                  << (waits.empty() ? "nothing" : waits);
  }

  const PlannedJob& job_;
  const LayoutRanking& ranking_;
  const std::optional<Tried>& tried_;
  std::vector<Certainty> certain_;
};

int run_plan(const PlanArguments& arguments, Console& shown) {
  std::ostringstream unseen;
  Console silent({unseen, unseen, false, {}});
  Console& console = arguments.json ? silent : shown;  // only the line of JSON is printed
  if (!arguments.cluster.empty()) return plan_on_cluster(arguments, console);
  PlannedJob job(arguments, console);
  LayoutRanking ranking = job.rank();
  std::optional<Tried> tried;
  if (arguments.tries > 0) tried = try_layouts(job, ranking.best, arguments, console);
  const RankedLayout* best = &ranking.best.front();
  if (tried) {
    const auto least = std::ranges::min_element(tried->step_ms) - tried->step_ms.begin();
    best = &ranking.best[static_cast<std::size_t>(least)];
  }
  const Printed printed(job, ranking, tried, job.planner().certainties(ranking));
  if (arguments.json) {
    std::cout << printed.json(arguments.top).dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else {
    printed.text(arguments.top);
  }
  PlanConfig predicted;
  predicted.predicted_step_ms = best->step_ms;
  predicted.predicted_passes_ms = best->passes_ms;
  job.app().write(best->settings, predicted,
                  "Layouts chosen by `maestro plan`: " + fixed(best->step_ms, 1) + " ms a step on " +
                      job.machine().text() + "; no layout that was compared takes less than " +
                      fixed(ranking.least_bound_ms, 1) + " ms.");
  if (!arguments.page.empty()) {
    const LaneRehearsal lanes = job.planner().rehearsal(*best);
    const PlanPage page = ranking_page(job.title(), ranking, *best, job.base().train.global_batch,
                                       timeline_of(lanes.rehearsed, lanes.graph));
    write_output(arguments.page, page_of(page)).or_throw();
    console.note("written   " + printable(arguments.page.string()));
  }
  return 0;
}

int run_profile(const PlanArguments& arguments, Console& console) {
  PlannedJob job(arguments, console);
  job.measure();
  console.note(std::to_string(job.prices().alone.measured().size()) + " calls have prices in " +
               printable(arguments.profile.string()));
  return 0;
}

}  // namespace

void add_plan(Commands& commands) {
  const auto [command, arguments] = commands.add("plan", "choose the layouts of a job on this machine", run_plan);
  command.add_option("job", arguments.job, "job file (TOML) whose layouts are chosen")->required();
  command.add_flag("--json", arguments.json, "print the answer as a line of JSON");
  add_job_options(command, arguments);
  command.add_option("--profile", arguments.profile,
                     "prices of calls: read if it exists, and written with new measurements");
  command.add_option("--top", arguments.top, "layouts to print (default 5)")->check(whole_number(1, 1000));
  command.add_option("--out", arguments.out, "write the job with the best layout here");
  command.add_option("--page", arguments.page, "write a page with the plan here");
  command.add_option("--try", arguments.tries, "also run so many of the best layouts, in turn")
      ->check(whole_number(1, 100));
  CLI::Option* const cluster =
      command.add_option("--cluster", arguments.cluster, "plan for the devices that this file describes");
  for (const char* const of_machine : {"--profile", "--try", "--cpu-devices", "--devices", "--measure-ms"}) {
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
  command.add_option("--steps", arguments.steps, "steps of each run by --try (default 20)")
      ->check(whole_number(6, 100000));
}

void add_profile(Commands& commands) {
  const auto [command, arguments] =
      commands.add("profile", "measure the calls of a job's layouts on this machine, for plan", run_profile);
  command.add_option("job", arguments.job, "job file (TOML)")->required();
  add_job_options(command, arguments);
  arguments.profile = "profile.json";
  command.add_option("--out", arguments.profile,
                     "file of the prices, which keeps its old prices (default profile.json)");
}

}  // namespace maestro
