#include "runtime/wavefront/wavefront_policy.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/wavefront/arrival.hpp"
#include "runtime/wavefront/lower_bound.hpp"
#include "runtime/wavefront/portfolio.hpp"
#include "runtime/wavefront/safe_schedule.hpp"
#include "runtime/wavefront/search.hpp"

namespace maestro {

namespace {

constexpr double endless = std::numeric_limits<double>::infinity();
constexpr double close_enough = 1.001;  // times the lower bound

/// Evaluations that take about 0.3 s on a core of 2 GHz; few enough that small workloads take less.
std::int64_t automatic_evaluations(const PlanningGraph& graph) {
  const double each_us = 2.0 + 0.1 * graph.passes;
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(280e3 / each_us), 200, 20000);
}

SearchBudget budget_of(const PolicyOptions& options, const PlanningGraph& graph, const Workload& workload) {
  SearchBudget budget;
  budget.good_enough_ms = close_enough * lower_bound_ms(workload);
  budget.evaluations = options.evaluations > 0 ? options.evaluations : automatic_evaluations(graph);
  if (!options.deterministic) {
    budget.until = budget.since + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                      std::chrono::duration<double, std::milli>(options.budget_ms));
  }
  return budget;
}

/// The orders of the portfolio under a few rules each, best first; infinite ones left out.
std::vector<Candidate> try_portfolio(Simulator& simulator, const PlanningGraph& graph, const Anchors& anchors,
                                     const SearchBudget& budget, std::int64_t& used) {
  std::vector<Candidate> tried;
  const auto sections = graph.sections.size();
  const auto attempt = [&](const DispatchRules& rules) {
    const double makespan_ms = simulator.run(rules, endless);
    ++used;
    if (makespan_ms < endless) tried.push_back({rules, makespan_ms});
    return makespan_ms;
  };
  const auto by_makespan = [](const Candidate& a, const Candidate& b) { return a.makespan_ms < b.makespan_ms; };
  DispatchRules rules;
  rules.theta.assign(sections, 0.5);
  rules.depth.assign(graph.edges.size(), 1.0);
  for (const std::vector<int>& order : anchor_orders(anchors)) {
    rules.order = spread_order(graph, anchors, order);
    for (const int variant : {0, 1, 2, 3, 4, 5}) {
      if (budget.spent(used) > 0.3 || (variant >= 2 && !graph.has_joint_tasks())) break;
      rules.hungry_producers_first = variant % 2 == 0;
      rules.joint_slots = static_cast<DispatchRules::JointSlots>(variant / 2);
      if (attempt(rules) <= budget.good_enough_ms) return {tried.back()};
    }
  }
  std::stable_sort(tried.begin(), tried.end(), by_makespan);
  const std::size_t refined = std::min<std::size_t>(tried.size(), 3);
  for (std::size_t n = 0; n < refined; ++n) {
    rules = tried[n].rules;
    for (const double theta : {0.0, 0.25, 0.75, 1.0, 1.5}) {
      if (budget.spent(used) > 0.3) break;
      rules.theta.assign(sections, theta);
      attempt(rules);
    }
    rules = tried[n].rules;
    for (const double depth : {0.5, 2.0, 1e9}) {
      if (budget.spent(used) > 0.3) break;
      rules.depth.assign(graph.edges.size(), depth);
      attempt(rules);
    }
  }
  std::stable_sort(tried.begin(), tried.end(), by_makespan);
  return tried;
}

}  // namespace

std::vector<std::size_t> WavefrontPolicy::packing_order(const Workload& samples, std::size_t count) const {
  std::vector<double> upstream(count);
  std::vector<std::size_t> last_section(count);
  for (const WorkloadTask& task : samples.tasks) {
    const auto sample = static_cast<std::size_t>(task.sample);
    if (sample < count && !task.inputs.empty()) last_section[sample] = std::max(last_section[sample], task.section);
  }
  for (const WorkloadTask& task : samples.tasks) {
    const auto sample = static_cast<std::size_t>(task.sample);
    if (sample < count && task.section < last_section[sample]) upstream[sample] += task.forward_ms + task.backward_ms;
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return upstream[a] < upstream[b]; });
  const auto fed = std::find_if(order.begin(), order.end(), [&](std::size_t sample) { return upstream[sample] > 0; });
  // A stride near the golden section of the count visits the sorted samples so that every stretch holds the same mix.
  const auto heavy = static_cast<std::size_t>(order.end() - fed);
  std::size_t stride =
      std::max<std::size_t>(1, static_cast<std::size_t>(0.6180339887498949 * static_cast<double>(heavy)));
  while (std::gcd(stride, heavy) > 1) ++stride;
  const std::vector<std::size_t> sorted(fed, order.end());
  for (std::size_t n = 0; n < heavy; ++n) *(fed + static_cast<std::ptrdiff_t>(n)) = sorted[n * stride % heavy];
  return order;
}

Result<Schedule> WavefrontPolicy::plan(const Workload& workload) const {
  if (workload.tasks.empty()) return Schedule{};
  const PlanningGraph graph(workload, Binding::late);
  const SearchBudget budget = budget_of(options_, graph, workload);
  Simulator simulator(graph);
  const Anchors anchors(workload, graph);
  std::int64_t used = 0;
  std::vector<Candidate> tried = try_portfolio(simulator, graph, anchors, budget, used);

  std::optional<Schedule> best;
  if (!tried.empty()) {
    Random random(options_.seed);
    const Candidate found = anneal(simulator, graph, tried.front(), budget, used, 1.0, random);
    best = simulator.schedule(found.rules);
  }
  Result<Schedule> arrival = ArrivalPolicy().plan(workload);
  if (!best || (arrival && arrival->makespan_ms < best->makespan_ms)) return arrival;
  return std::move(*best);
}

}  // namespace maestro
