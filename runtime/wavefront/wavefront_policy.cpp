// SPDX-License-Identifier: Apache-2.0
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
#include "runtime/wavefront/equal_parts.hpp"
#include "runtime/wavefront/lower_bound.hpp"
#include "runtime/wavefront/portfolio.hpp"
#include "runtime/wavefront/safe_schedule.hpp"
#include "runtime/wavefront/search.hpp"

namespace maestro {

namespace {

constexpr double endless = std::numeric_limits<double>::infinity();
constexpr double close_enough = 1.001;  // factor of the lower bound

/// Simulator steps in about 0.3 s on a 2 GHz core.
constexpr std::int64_t automatic_steps = 10'000'000;

/// Simulator steps for the portfolio, at most.
constexpr std::int64_t portfolio_steps = automatic_steps / 5;

/// Number of tasks below which steps are shorter, because all state stays in the L1 cache.
constexpr std::size_t small_tasks = 256;
constexpr std::int64_t small_steps = automatic_steps * 6 / 5;

/// Limit of evaluations; searches of the smallest workloads are exhausted long before.
constexpr std::int64_t most_evaluations = 20'000;

SearchBudget budget_of(const PolicyOptions& options, const PlanningGraph& graph, const Workload& workload) {
  SearchBudget budget;
  budget.good_enough_ms = close_enough * lower_bound_ms(workload);
  budget.evaluations = options.evaluations;
  const std::int64_t steps = graph.tasks.size() <= small_tasks ? small_steps : automatic_steps;
  budget.steps = std::min<std::int64_t>(steps, most_evaluations * (20 + 4 * graph.passes));
  if (!options.deterministic) {
    budget.until = budget.since + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                      std::chrono::duration<double, std::milli>(options.budget_ms));
  }
  return budget;
}

/// A binding of tasks, and the best rules found for it.
class Trial {
 public:
  Trial(const Workload& workload, Binding binding)
      : graph_(workload, binding), simulator_(graph_), even_simulator_(graph_), anchors_(workload, graph_) {}

  [[nodiscard]] const PlanningGraph& graph() const { return graph_; }

  /// Tries all orders of the portfolio, then other switches for the best of them, until `steps` in all, or the budget,
  /// are spent; tries the first order in any case.
  void try_portfolio(Spending& spending, std::int64_t steps) {
    steps_ = steps;
    DispatchRules rules;
    rules.await_faster = graph_.has_slower_lanes();
    rules.theta.assign(graph_.sections.size(), 0.5);
    rules.depth.assign(graph_.edges.size(), 1.0);
    rules.slots_at_start.assign(graph_.sections.size(), 0);
    for (const std::vector<int>& order : anchor_orders(anchors_)) {
      rules.order = spread_order(graph_, anchors_, order);
      for (const bool hungry : {true, false}) {
        rules.hungry_producers_first = hungry;
        attempt(rules, spending);
      }
    }
    sort_tried();
    const std::vector<Candidate> best(tried_.begin(), tried_.begin() + std::min<std::ptrdiff_t>(3, count()));
    for (const Candidate& candidate : best) turn_switches(candidate, spending);
    sort_tried();
  }

  [[nodiscard]] const std::vector<Candidate>& tried() const { return tried_; }
  [[nodiscard]] Candidate search(const Candidate& start, Spending& spending, Random& random) {
    return anneal(simulator_, graph_, start, spending, random, [this](const Candidate& best) { even_out(best); });
  }
  /// Returns the best candidate after spreading the tasks evenly over equally fast lanes, among the candidates that
  /// were the best at their time; nothing if this made all of them longer.
  [[nodiscard]] const std::optional<Candidate>& evened() const { return evened_; }
  [[nodiscard]] Schedule schedule(const Candidate& candidate) { return simulator_.schedule(candidate.rules); }

 private:
  [[nodiscard]] std::ptrdiff_t count() const { return static_cast<std::ptrdiff_t>(tried_.size()); }

  /// Tries each switch in turn; keeps each at its best value.
  void turn_switches(Candidate best, Spending& spending) {
    const auto keep_if_better = [&](const DispatchRules& rules) {
      const double makespan_ms = attempt(rules, spending);
      if (makespan_ms < best.makespan_ms) best = {rules, makespan_ms};
    };
    for (const auto slots : {DispatchRules::JointSlots::all_at_end, DispatchRules::JointSlots::each_at_end}) {
      DispatchRules rules = best.rules;
      rules.joint_slots = slots;
      if (graph_.has_joint_tasks()) keep_if_better(rules);
    }
    for (const PlanningGraph::Edge& edge : graph_.edges) {
      DispatchRules rules = best.rules;
      rules.slots_at_start[static_cast<std::size_t>(edge.from)] ^= 1;
      keep_if_better(rules);
    }
    for (const double theta : {0.0, 0.25, 0.75, 1.0, 1.5}) {
      DispatchRules rules = best.rules;
      rules.theta.assign(rules.theta.size(), theta);
      keep_if_better(rules);
    }
    for (const double depth : {0.5, 2.0, 1e9}) {
      DispatchRules rules = best.rules;
      rules.depth.assign(rules.depth.size(), depth);
      keep_if_better(rules);
    }
    DispatchRules rules = best.rules;
    rules.await_faster = false;
    if (graph_.has_slower_lanes()) keep_if_better(rules);
    rules = best.rules;
    rules.ordered_gradients = true;
    keep_if_better(rules);
    rules = best.rules;
    rules.whole_tasks = false;
    keep_if_better(rules);
    rules.theta.assign(rules.theta.size(), forward_first);
    keep_if_better(rules);
    for (const auto order : {DispatchRules::DeviceOrder::trained_ahead, DispatchRules::DeviceOrder::ahead}) {
      rules = best.rules;
      rules.device_order = order;
      if (shares_devices()) keep_if_better(rules);
    }
  }

  [[nodiscard]] bool shares_devices() const {
    return std::any_of(graph_.sections.begin(), graph_.sections.end(),
                       [](const PlanningGraph::Section& section) { return section.shared; });
  }

  /// Returns infinity if the budget is spent, or a schedule of this trial is already good enough.
  double attempt(const DispatchRules& rules, Spending& spending) {
    constexpr double worth_knowing = 1.1;  // factor of the best so far
    if (best_ms_ <= spending.good_enough_ms()) return endless;
    if (!tried_.empty() && (spending.steps() >= steps_ || spending.share() >= 1)) return endless;
    const double makespan_ms = spending.run(simulator_, rules, best_ms_ * worth_knowing);
    if (makespan_ms == endless) return endless;
    tried_.push_back({rules, makespan_ms});
    if (makespan_ms < best_ms_) even_out(tried_.back());
    best_ms_ = std::min(best_ms_, makespan_ms);
    return makespan_ms;
  }

  void even_out(const Candidate& candidate) {
    DispatchRules rules = candidate.rules;
    rules.lanes_in_turn = true;
    rules.last_lane_first = false;  // the turn is upwards
    const double most_ms = std::min(candidate.makespan_ms, evened_ ? evened_->makespan_ms : endless);
    const double makespan_ms = even_simulator_.run(rules, most_ms);
    if (makespan_ms < endless) evened_ = {std::move(rules), makespan_ms};
  }

  void sort_tried() {
    std::stable_sort(tried_.begin(), tried_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.makespan_ms < b.makespan_ms; });
  }

  const PlanningGraph graph_;  // before the simulator, which refers to it
  Simulator simulator_;
  Simulator even_simulator_;  // not in the budget, which decides how many candidates there are (AN-1)
  const Anchors anchors_;
  std::vector<Candidate> tried_;  // candidates that did not deadlock
  std::optional<Candidate> evened_;
  double best_ms_ = endless;
  std::int64_t steps_ = 0;
};

/// Returns the best schedule found; nothing if every candidate deadlocks. The budget decides only when the search ends.
/// Between equally long schedules it takes the one with evenly spread tasks: the end of the step, which is not a part
/// of a schedule, waits for the lane with most work.
std::optional<Schedule> search(const Workload& workload, const PolicyOptions& options) {
  Trial late(workload, Binding::late);
  Spending spending(budget_of(options, late.graph(), workload));
  std::vector<Trial*> trials{&late};
  std::optional<Trial> mixed;
  if (late.graph().has_joint_tasks()) trials.push_back(&mixed.emplace(workload, Binding::mixed));
  for (std::size_t n = 0; n < trials.size(); ++n) {
    trials[n]->try_portfolio(
        spending, portfolio_steps * static_cast<std::int64_t>(n + 1) / static_cast<std::int64_t>(trials.size()));
  }
  std::erase_if(trials, [](const Trial* trial) { return trial->tried().empty(); });
  if (trials.empty()) return std::nullopt;
  Trial& winner = **std::min_element(trials.begin(), trials.end(), [](const Trial* a, const Trial* b) {
    return a->tried().front().makespan_ms < b->tried().front().makespan_ms;
  });
  Random random(options.seed);
  const Candidate best = winner.search(winner.tried().front(), spending, random);
  Trial& even = **std::ranges::min_element(
      trials, {}, [](const Trial* trial) { return trial->evened() ? trial->evened()->makespan_ms : endless; });
  const bool evened = even.evened() && even.evened()->makespan_ms <= best.makespan_ms;
  return evened ? even.schedule(*even.evened()) : winner.schedule(best);
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
  const std::optional<EqualParts> parts = EqualParts::of(workload);
  std::optional<Schedule> best = search(parts ? parts->part() : workload, options_);
  if (best && parts) best = parts->repeated(*best);
  Result<Schedule> arrival = ArrivalPolicy().plan(workload);
  if (!best || (arrival && arrival->makespan_ms < best->makespan_ms)) return arrival;
  return std::move(*best);
}

}  // namespace maestro
