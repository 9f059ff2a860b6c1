// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/simulate_command.hpp"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "apps/maestro/number_options.hpp"
#include "runtime/observe/output_file.hpp"
#include "runtime/wavefront/lower_bound.hpp"
#include "runtime/wavefront/policy.hpp"
#include "runtime/wavefront/timeline_trace.hpp"
#include "runtime/wavefront/workload_file.hpp"

namespace maestro {

namespace {

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

}  // namespace

SimulateCommand::SimulateCommand(CLI::App& app)
    : command_(app.add_subcommand("simulate", "plan a workload file in virtual time")) {
  command_->add_option("workload", arguments_.workload, "workload file (JSON)")->required();
  command_->add_option("--policy", arguments_.policy, "arrival, bulk_synchronous or wavefront (default)");
  command_->add_option("--timeline", arguments_.timeline, "also write the passes here, for Perfetto");
  command_->add_option("--budget-ms", arguments_.budget_ms, "plan for so long (default: a fixed number of tries)")
      ->check(decimal_number(1.0, 3.6e6));
  command_->add_option("--seed", arguments_.seed, "of the search for an order")->check(whole_number(0));
}

int SimulateCommand::run(Console& console) const {
  PolicyOptions options;
  options.seed = static_cast<std::uint64_t>(arguments_.seed);
  if (arguments_.budget_ms > 0) {  // a time limit is measured by the clock
    options.budget_ms = arguments_.budget_ms;
    options.deterministic = false;
  }
  const auto policy = make_policy(arguments_.policy, options);
  const Workload workload = load_workload(arguments_.workload);

  const auto begin = std::chrono::steady_clock::now();
  const Schedule schedule = policy->plan(workload).value_or_throw();
  const std::chrono::duration<double, std::milli> planning = std::chrono::steady_clock::now() - begin;
  if (const Status legal = check_schedule(workload, schedule, tolerance_ms(schedule)); !legal.ok()) {
    throw std::logic_error("policy " + arguments_.policy + " broke a rule: " + legal.error().message);
  }

  double bound = lower_bound_ms(workload);
  if (bound > schedule.makespan_ms + tolerance_ms(schedule)) {
    throw std::logic_error("the lower bound is beyond a legal schedule");
  }
  bound = std::min(bound, schedule.makespan_ms);  // the two round differently
  nlohmann::ordered_json result = {
      {"policy", arguments_.policy},     {"makespan_ms", schedule.makespan_ms},
      {"lower_bound_ms", bound},         {"ratio", bound > 0 ? schedule.makespan_ms / bound : 1.0},
      {"planning_ms", planning.count()}, {"utilization", utilization_json(workload, schedule)}};
  if (!arguments_.timeline.empty()) {
    write_output(arguments_.timeline, timeline_trace_json(workload, schedule)).or_throw();
  }
  // The timeline is JSON already; it goes last, in place of the closing brace.
  std::string text = result.dump();
  text.back() = ',';
  console.answer(text + "\"timeline\":" + timeline_json(workload, schedule) + "}");
  return 0;
}

}  // namespace maestro
