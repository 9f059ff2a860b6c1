// SPDX-License-Identifier: Apache-2.0
// anneal() and its budget.
#include "runtime/wavefront/search.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "benchmarks/schedule/workload_generator.hpp"
#include "runtime/wavefront/lower_bound.hpp"
#include "runtime/wavefront/policy.hpp"
#include "tests/wavefront/simulated_workloads.hpp"

namespace maestro {
namespace {

/// A graph, its simulator, and a candidate from random rules that do not deadlock.
struct Start {
  Start(const Workload& workload, Random& random) : graph(workload, Binding::late), simulator(graph) {
    do {
      candidate.rules = random_rules(workload, graph, random);
      candidate.makespan_ms = simulator.run(candidate.rules, endless);
    } while (candidate.makespan_ms == endless);
  }

  const PlanningGraph graph;
  Simulator simulator;
  Candidate candidate;
};

SearchBudget tries(std::int64_t evaluations) {
  SearchBudget budget;
  budget.evaluations = evaluations;
  return budget;
}

TEST(Anneal, returns_no_candidate_that_is_worse_than_its_start_and_the_makespan_of_its_rules) {
  int improved = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const GeneratedWorkload generated = generate_tiny_workload(workload_kinds()[seed % 4], seed, 12);
    Start start(generated.workload, random);
    for (const std::int64_t evaluations : {1, 5, 30, 200}) {
      Spending spending(tries(evaluations));
      Candidate best = anneal(start.simulator, start.graph, start.candidate, spending, random);
      EXPECT_LE(best.makespan_ms, start.candidate.makespan_ms) << generated.name << ", " << evaluations;
      EXPECT_EQ(start.simulator.run(best.rules, endless), best.makespan_ms) << generated.name << ", " << evaluations;
      improved += best.makespan_ms < start.candidate.makespan_ms ? 1 : 0;
    }
  }
  EXPECT_GT(improved, 50);
}

TEST(Anneal, finds_the_optimum_of_a_flow_shop_from_the_worst_order) {
  // Johnson's order reversed; the optimum is 30.
  const Workload workload = flow_shop({{5, 2}, {10, 4}, {9, 7}, {3, 8}, {1, 6}});
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    const PlanningGraph graph(workload, Binding::late);
    Simulator simulator(graph);
    Candidate start{list_rules(graph, {0, 2, 4, 6, 8, 1, 3, 5, 7, 9}), 0};
    start.makespan_ms = simulator.run(start.rules, endless);
    ASSERT_GT(start.makespan_ms, 30);
    Spending spending(tries(2000));
    EXPECT_DOUBLE_EQ(anneal(simulator, graph, start, spending, random).makespan_ms, 30) << "seed " << seed;
  }
}

TEST(Anneal, ends_when_a_schedule_is_good_enough) {
  const Workload workload = flow_shop({{5, 2}, {10, 4}, {9, 7}, {3, 8}, {1, 6}});
  Random random(1);
  Start start(workload, random);
  SearchBudget budget = tries(100'000);
  budget.good_enough_ms = start.candidate.makespan_ms;
  Spending spending(budget);
  const Candidate best = anneal(start.simulator, start.graph, start.candidate, spending, random);
  EXPECT_EQ(best.makespan_ms, start.candidate.makespan_ms);
  EXPECT_LE(spending.share(), 1e-5);
}

TEST(Anneal, tries_the_same_candidates_under_every_budget) {  // AN-1
  const Workload workload = generate_tiny_workload(WorkloadKind::distillation, 3, 12).workload;
  Random seeds(1);
  Start start(workload, seeds);
  double last_ms = endless;
  for (const std::int64_t evaluations : {1, 2, 4, 10, 30, 100, 1000, 10'000}) {
    Random random(1);
    Spending spending(tries(evaluations));
    const double best_ms = anneal(start.simulator, start.graph, start.candidate, spending, random).makespan_ms;
    EXPECT_GE(spending.share(), 1);
    EXPECT_LE(best_ms, last_ms) << evaluations;
    last_ms = best_ms;
  }
  EXPECT_LT(last_ms, start.candidate.makespan_ms);
}

TEST(Wavefront, gives_equally_fast_lanes_that_wait_for_tasks_as_many_of_them) {
  Workload workload;
  workload.sections = {{"teacher", false, 1, no_limit, {}}, {"student", true, 4, no_limit, {}}};
  workload.edges = {{0, 1, 2, 0}};
  for (std::int64_t sample = 0; sample < 40; ++sample) {
    workload.tasks.push_back({0, sample, 1, 0, {}});
    workload.tasks.push_back({1, sample, 0.6, 0.6, {{0, workload.tasks.size() - 1}}});
  }
  const Schedule schedule = make_policy("wavefront", {})->plan(workload).value_or_throw();
  std::map<std::int64_t, int> tasks;
  for (const PlannedPass& pass : schedule.passes) {
    if (workload.tasks[pass.task].section == 1 && !pass.backward) ++tasks[pass.replica];
  }
  EXPECT_EQ(tasks, (std::map<std::int64_t, int>{{0, 10}, {1, 10}, {2, 10}, {3, 10}})) << "two could do all";
}

TEST(Spending, counts_steps_of_the_simulator_when_there_are_no_evaluations_to_count) {
  const Workload workload = flow_shop({{5, 2}, {10, 4}});
  Random random(1);
  Start start(workload, random);
  SearchBudget budget;
  budget.steps = 1000;
  Spending spending(budget);
  const std::int64_t before = start.simulator.steps();
  spending.run(start.simulator, start.candidate.rules, endless);
  EXPECT_DOUBLE_EQ(spending.share(), static_cast<double>(start.simulator.steps() - before) / 1000);
}

}  // namespace
}  // namespace maestro
