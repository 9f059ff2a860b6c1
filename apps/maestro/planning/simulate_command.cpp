// SPDX-License-Identifier: Apache-2.0
// `maestro simulate WORKLOAD`: the plan of a workload file, in virtual time.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "runtime/observe/output_file.hpp"
#include "runtime/wavefront/lower_bound.hpp"
#include "runtime/wavefront/policy.hpp"
#include "runtime/wavefront/timeline_trace.hpp"
#include "runtime/wavefront/workload_file.hpp"

namespace maestro {

namespace {

struct SimulateArguments {
  std::filesystem::path workload;  ///< JSON, see docs/workloads.md
  std::string policy = "wavefront";
  std::filesystem::path timeline;  ///< also write the passes here, for Perfetto; empty: no timeline
  double budget_ms = 0;            ///< clock time for planning; 0: as many tries as usual
  std::int64_t seed = 1;           ///< seed of the search
};

/// Sums of long times round in the last digits.
double tolerance_ms(const Schedule& schedule) {
  return 1e-6 + 1e-12 * schedule.makespan_ms;
}

nlohmann::ordered_json utilization_json(const Workload& workload, const Schedule& schedule) {
  nlohmann::ordered_json shares = nlohmann::ordered_json::object();
  const std::vector<double> by_section = utilization(workload, schedule);
  for (std::size_t section = 0; section < by_section.size(); ++section) {
    shares[workload.sections[section].name] = by_section[section];
  }
  return shares;
}

int run_simulate(const SimulateArguments& arguments, Console& console) {
  PolicyOptions options;
  options.seed = static_cast<std::uint64_t>(arguments.seed);
  if (arguments.budget_ms > 0) {  // a time limit is measured by the clock
    options.budget_ms = arguments.budget_ms;
    options.deterministic = false;
  }
  const auto policy = make_policy(arguments.policy, options);
  const Workload workload = load_workload(arguments.workload);

  const auto begin = std::chrono::steady_clock::now();
  const Schedule schedule = policy->plan(workload).value_or_throw();
  const std::chrono::duration<double, std::milli> planning = std::chrono::steady_clock::now() - begin;
  if (const Status legal = check_schedule(workload, schedule, tolerance_ms(schedule)); !legal.ok()) {
    throw std::logic_error("policy " + arguments.policy + " broke a rule: " + legal.error().message);
  }

  double bound = lower_bound_ms(workload);
  if (bound > schedule.makespan_ms + tolerance_ms(schedule)) {
    throw std::logic_error("the lower bound is beyond a legal schedule");
  }
  bound = std::min(bound, schedule.makespan_ms);  // the two round differently
  nlohmann::ordered_json result = {
      {"policy", arguments.policy},      {"makespan_ms", schedule.makespan_ms},
      {"lower_bound_ms", bound},         {"ratio", bound > 0 ? schedule.makespan_ms / bound : 1.0},
      {"planning_ms", planning.count()}, {"utilization", utilization_json(workload, schedule)}};
  if (!arguments.timeline.empty()) {
    write_output(arguments.timeline, timeline_trace_json(workload, schedule)).or_throw();
  }
  // The timeline is JSON already; it goes last, in place of the closing brace.
  std::string text = result.dump();
  text.back() = ',';
  console.answer(text + "\"timeline\":" + timeline_json(workload, schedule) + "}");
  return 0;
}

}  // namespace

void add_simulate(Commands& commands) {
  const auto [command, arguments] = commands.add("simulate", "plan a workload file in virtual time", run_simulate);
  command.add_option("workload", arguments.workload, "workload file (JSON)")->required();
  command.add_option("--policy", arguments.policy, "arrival, bulk_synchronous or wavefront (default)");
  command.add_option("--timeline", arguments.timeline, "also write the passes here, for Perfetto");
  command.add_option("--budget-ms", arguments.budget_ms, "plan for so long (default: a fixed number of tries)")
      ->check(decimal_number(1.0, 3.6e6));
  command.add_option("--seed", arguments.seed, "seed of the search for an order")->check(whole_number(0));
}

}  // namespace maestro
