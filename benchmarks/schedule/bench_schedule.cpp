// SPDX-License-Identifier: Apache-2.0
// Plans generated workloads under every policy on a single core, checks each schedule against all rules, and compares
// it with the lower bound, with the other policies, and, for a small workload, with the shortest schedule. Prints a
// JSON object per line; with --table also a summary on standard error.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/schedule/exhaustive.hpp"
#include "benchmarks/schedule/workload_generator.hpp"
#include "runtime/wavefront/lower_bound.hpp"
#include "runtime/wavefront/policy.hpp"

namespace maestro {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::int64_t workloads = 120;  // with the layout `sized`
  std::int64_t tight = 40;
  std::int64_t heavy = 48;
  std::int64_t tiny = 200;
  std::uint64_t seed = 1;
  double budget_ms = 0;
  bool table = false;
};

struct Planned {
  double makespan_ms = 0;
  double planning_ms = 0;
};

/// The mean and the worst of a series of figures.
class Figures {
 public:
  void add(double value) {
    sum_ += value;
    worst_ = count_ == 0 ? value : std::max(worst_, value);
    best_ = count_ == 0 ? value : std::min(best_, value);
    ++count_;
  }
  [[nodiscard]] double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  [[nodiscard]] double worst() const { return worst_; }
  [[nodiscard]] double best() const { return best_; }
  [[nodiscard]] std::int64_t count() const { return count_; }

 private:
  double sum_ = 0;
  double worst_ = 0;
  double best_ = 0;
  std::int64_t count_ = 0;
};

/// Ends the program if a policy returns an invalid schedule, because its figures would be meaningless.
Planned plan(const std::string& policy, const GeneratedWorkload& generated, const Options& options) {
  PolicyOptions settings;
  settings.seed = options.seed;
  if (options.budget_ms > 0) {
    settings.budget_ms = options.budget_ms;
    settings.deterministic = false;
  }
  const auto planner = make_policy(policy, settings);
  const auto begin = std::chrono::steady_clock::now();
  const Result<Schedule> schedule = planner->plan(generated.workload);
  const std::chrono::duration<double, std::milli> planning = std::chrono::steady_clock::now() - begin;
  const Status legal = schedule.ok() ? check_schedule(generated.workload, *schedule) : Status(Error(schedule.error()));
  if (!legal.ok()) throw JobError(generated.name + " under " + policy + ": " + legal.error().message);
  return {schedule->makespan_ms, planning.count()};
}

struct Summary {
  std::map<std::string, Figures> ratio;        // by layout and policy: makespan / lower bound
  std::map<std::string, Figures> kind_ratio;   // by layout and kind, wavefront only
  std::map<std::string, Figures> against;      // by layout and policy: makespan / wavefront's makespan
  std::map<std::string, Figures> planning_ms;  // by layout and policy
  std::map<std::string, Figures> shortest;     // by policy: makespan / shortest makespan
  Figures bound_gap;                           // shortest makespan / lower bound
};

void plan_generated(const Options& options, WorkloadLayout layout, std::int64_t count, Summary& summary) {
  const std::string layout_name(name_of(layout));
  const std::vector<WorkloadKind> kinds = layout == WorkloadLayout::heavy
                                              ? std::vector{WorkloadKind::vision_language, WorkloadKind::distillation}
                                              : workload_kinds();
  for (std::int64_t at = 0; at < count; ++at) {
    const WorkloadKind kind = kinds[static_cast<std::size_t>(at) % kinds.size()];
    const std::uint64_t seed = options.seed * 1000 + static_cast<std::uint64_t>(at) / kinds.size();
    const GeneratedWorkload generated = generate_workload(kind, seed, layout);
    const double bound = lower_bound_ms(generated.workload);
    ordered_json row = {
        {"benchmark", "schedule"}, {"layout", layout_name}, {"workload", generated.name}, {"lower_bound_ms", bound}};
    std::map<std::string, Planned> planned;
    for (const std::string_view name : policy_names()) {
      const std::string policy(name);
      planned[policy] = plan(policy, generated, options);
      const double ratio = planned[policy].makespan_ms / bound;
      const std::string key = layout_name + ", " + policy;
      summary.ratio[key].add(ratio);
      summary.planning_ms[key].add(planned[policy].planning_ms);
      row[policy] = {
          {"makespan_ms", planned[policy].makespan_ms}, {"ratio", ratio}, {"planning_ms", planned[policy].planning_ms}};
      if (policy == "wavefront") summary.kind_ratio[layout_name + ", " + std::string(name_of(kind))].add(ratio);
    }
    for (const auto& [policy, result] : planned) {
      summary.against[layout_name + ", " + policy].add(result.makespan_ms / planned["wavefront"].makespan_ms);
    }
    std::cout << row.dump() << '\n';
  }
}

void plan_tiny(const Options& options, Summary& summary) {
  constexpr std::int64_t most_samples = 7;
  constexpr std::int64_t most_nodes = 300'000;
  const std::vector<WorkloadKind> kinds = workload_kinds();
  for (std::int64_t at = 0; at < options.tiny; ++at) {
    const WorkloadKind kind = kinds[static_cast<std::size_t>(at) % kinds.size()];
    const std::uint64_t seed = options.seed * 1000 + static_cast<std::uint64_t>(at) / kinds.size();
    const GeneratedWorkload generated = generate_tiny_workload(kind, seed, most_samples);
    const ExhaustiveResult shortest = shortest_schedule(generated.workload, most_nodes);
    if (!shortest.proven) continue;
    const double optimum = shortest.schedule.makespan_ms;
    ordered_json row = {{"benchmark", "schedule_tiny"},
                        {"workload", generated.name},
                        {"shortest_ms", optimum},
                        {"lower_bound_ms", lower_bound_ms(generated.workload)}};
    summary.bound_gap.add(optimum / row["lower_bound_ms"].get<double>());
    for (const std::string_view name : policy_names()) {
      const std::string policy(name);
      const double ratio = plan(policy, generated, options).makespan_ms / optimum;
      summary.shortest[policy].add(ratio);
      row[policy] = ratio;
    }
    std::cout << row.dump() << '\n';
  }
}

void print_summary(const Summary& summary) {
  for (const auto& [policy, ratio] : summary.ratio) {
    const Figures& planning = summary.planning_ms.at(policy);
    const Figures& against = summary.against.at(policy);
    std::cout << ordered_json{{"summary", policy},
                              {"workloads", ratio.count()},
                              {"ratio_mean", ratio.mean()},
                              {"ratio_worst", ratio.worst()},
                              {"times_wavefront_mean", against.mean()},
                              {"times_wavefront_most", against.worst()},
                              {"planning_ms_mean", planning.mean()},
                              {"planning_ms_most", planning.worst()}}
                     .dump()
              << '\n';
  }
  for (const auto& [kind, ratio] : summary.kind_ratio) {
    std::cout << ordered_json{{"summary", kind + ", wavefront"},
                              {"workloads", ratio.count()},
                              {"ratio_mean", ratio.mean()},
                              {"ratio_worst", ratio.worst()}}
                     .dump()
              << '\n';
  }
  for (const auto& [policy, ratio] : summary.shortest) {
    std::cout << ordered_json{{"summary", policy + ", against the shortest schedule"},
                              {"workloads", ratio.count()},
                              {"ratio_mean", ratio.mean()},
                              {"ratio_worst", ratio.worst()},
                              {"bound_gap_mean", summary.bound_gap.mean()},
                              {"bound_gap_worst", summary.bound_gap.worst()}}
                     .dump()
              << '\n';
  }
}

void print_table(const Summary& summary) {
  std::fprintf(stderr, "\n%-26s %9s %9s %12s %12s %14s\n", "layout, policy", "mean", "worst", "x wavefront",
               "planning ms", "planning most");
  for (const auto& [policy, ratio] : summary.ratio) {
    const Figures& planning = summary.planning_ms.at(policy);
    std::fprintf(stderr, "%-26s %9.4f %9.4f %12.3f %12.2f %14.2f\n", policy.c_str(), ratio.mean(), ratio.worst(),
                 summary.against.at(policy).mean(), planning.mean(), planning.worst());
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("plans generated workloads under every policy and compares with the lower bound");
  app.add_option("--workloads", options.workloads, "generated workloads")->check(CLI::Range(0, 100'000));
  app.add_option("--tight", options.tight, "generated workloads whose limits were drawn without regard for each other")
      ->check(CLI::Range(0, 100'000));
  app.add_option("--heavy", options.heavy, "generated workloads with heavy tails and few tasks in flight")
      ->check(CLI::Range(0, 100'000));
  app.add_option("--tiny", options.tiny, "small workloads, compared with the shortest schedule")
      ->check(CLI::Range(0, 100'000));
  app.add_option("--seed", options.seed, "of workloads and search");
  app.add_option("--budget-ms", options.budget_ms, "plan by the clock instead of a fixed number of tries");
  app.add_flag("--table", options.table, "a table for people, on standard error");
  CLI11_PARSE(app, argc, argv);
  Summary summary;
  plan_generated(options, WorkloadLayout::sized, options.workloads, summary);
  plan_generated(options, WorkloadLayout::tight, options.tight, summary);
  plan_generated(options, WorkloadLayout::heavy, options.heavy, summary);
  plan_tiny(options, summary);
  print_summary(summary);
  if (options.table) print_table(summary);
  return 0;
}

}  // namespace
}  // namespace maestro

int main(int argc, char** argv) {
  try {
    return maestro::run(argc, argv);
  } catch (const std::exception& problem) {
    std::cerr << "error: " << problem.what() << '\n';
    return 1;
  }
}
