// SPDX-License-Identifier: Apache-2.0
// VT-1 .. VT-3 of runtime/wavefront/simulator/simulator.hpp, and the effect of single rules.
#include "runtime/wavefront/simulator/simulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <tuple>

#include "benchmarks/schedule/workload_generator.hpp"
#include "tests/wavefront/micro_batches.hpp"
#include "tests/wavefront/simulated_workloads.hpp"

namespace maestro {
namespace {

/// Checks the schedules of random rules under every binding. Returns how many of them end.
int check_random_rules(const std::string& name, const Workload& workload, Random& random, int turns) {
  int ended = 0;
  for (const Binding binding : {Binding::late, Binding::mixed, Binding::early}) {
    const PlanningGraph graph(workload, binding);
    Simulator simulator(graph);
    for (int turn = 0; turn < turns; ++turn) {
      const DispatchRules rules = random_rules(workload, graph, random);
      const double makespan_ms = simulator.run(rules, endless);
      if (makespan_ms == endless) continue;
      const Schedule schedule = simulator.schedule(rules);
      const Status legal = check_schedule(workload, schedule);
      EXPECT_TRUE(legal.ok()) << name << ", turn " << turn << ": " << legal.error().message;
      EXPECT_EQ(schedule.makespan_ms, makespan_ms) << name << ", turn " << turn;
      ++ended;
    }
  }
  return ended;
}

TEST(Simulator, every_schedule_of_random_rules_that_ends_obeys_the_workload) {  // VT-1
  Random random(5);
  int ended = 0;
  for (const WorkloadKind kind : workload_kinds()) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      const GeneratedWorkload generated = generate_tiny_workload(kind, seed, 10);
      ended += check_random_rules(generated.name, generated.workload, random, 6);
    }
  }
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    ended += check_random_rules("seed " + std::to_string(seed), micro_batch_workload(seed), random, 6);
  }
  EXPECT_GT(ended, 3000);
}

TEST(Simulator, every_schedule_of_random_rules_obeys_sets_of_devices) {  // VT-1
  Random random(7);
  int ended = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    for (Workload workload :
         {generate_tiny_workload(workload_kinds()[seed % 4], seed, 10).workload, micro_batch_workload(seed)}) {
      spread_over_devices(workload, random);
      ended += check_random_rules("seed " + std::to_string(seed), workload, random, 6);
    }
  }
  EXPECT_GT(ended, 1500);
}

TEST(Simulator, a_pass_waits_for_all_devices_of_its_lane_and_occupies_them_all) {
  // The llm uses devices 0 and 1, which encoders of 2 ms and 3 ms also use.
  Workload workload;
  workload.sections = {{"vision", false, 1, no_limit, {{1}}},
                       {"audio", false, 1, no_limit, {{0}}},
                       {"llm", false, 1, no_limit, {{0, 1}}}};
  workload.edges = {{0, 2, no_limit, 0}};
  workload.tasks = {{0, 0, 2, 0, {}}, {1, 0, 3, 0, {}}, {2, 0, 5, 0, {{0, 0}}}, {1, 1, 1, 0, {}}};
  const PlanningGraph graph(workload, Binding::late);
  EXPECT_TRUE(graph.sections[0].shared && graph.sections[1].shared && graph.sections[2].shared);
  Simulator simulator(graph);
  const Schedule schedule = simulator.schedule(list_rules(graph, {0, 1, 3, 2}));
  ASSERT_EQ(schedule.passes.size(), 4u);
  EXPECT_EQ(schedule.passes[2].task, 2u);
  EXPECT_DOUBLE_EQ(schedule.passes[2].start_ms, 3);  // the later of 2 and 3
  EXPECT_EQ(schedule.passes[3].task, 3u);
  EXPECT_DOUBLE_EQ(schedule.passes[3].start_ms, 8);
  EXPECT_DOUBLE_EQ(schedule.makespan_ms, 9);
}

TEST(Simulator, the_runs_before_do_not_change_a_run) {  // VT-2
  Random random(6);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Workload workload = micro_batch_workload(seed);
    const PlanningGraph graph(workload, Binding::mixed);
    Simulator used(graph);
    for (int turn = 0; turn < 5; ++turn) {
      const DispatchRules rules = random_rules(workload, graph, random);
      Simulator fresh(graph);
      const double makespan_ms = used.run(rules, endless);
      ASSERT_EQ(makespan_ms, fresh.run(rules, endless)) << "seed " << seed;
      if (makespan_ms == endless) continue;
      const Schedule first = used.schedule(rules);
      const Schedule second = fresh.schedule(rules);
      ASSERT_EQ(first.passes.size(), second.passes.size());
      for (std::size_t n = 0; n < first.passes.size(); ++n) {
        const PlannedPass& a = first.passes[n];
        const PlannedPass& b = second.passes[n];
        ASSERT_EQ(std::tie(a.task, a.backward, a.replica, a.start_ms),
                  std::tie(b.task, b.backward, b.replica, b.start_ms))
            << "seed " << seed;
      }
    }
  }
}

/// Returns whether the lane (section, replica) runs a pass at some time in (begin, end).
bool busy_within(const Workload& workload, const Schedule& schedule, std::size_t section, std::int64_t replica,
                 double begin, double end) {
  double free_since = begin;
  for (const PlannedPass& pass : schedule.passes) {  // by start
    if (workload.tasks[pass.task].section != section || pass.replica != replica) continue;
    if (pass.end_ms <= free_since || pass.start_ms >= end) continue;
    if (pass.start_ms > free_since + 1e-9) return false;
    free_since = pass.end_ms;
  }
  return free_since >= end - 1e-9;
}

TEST(Simulator, no_lane_idles_while_a_task_that_it_could_run_waits) {  // VT-3
  for (const WorkloadKind kind : workload_kinds()) {
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
      GeneratedWorkload generated = generate_tiny_workload(kind, seed, 10);
      Workload& workload = generated.workload;
      for (WorkloadSection& section : workload.sections) {
        section.max_in_flight = no_limit;
        section.devices.clear();
      }
      for (WorkloadEdge& edge : workload.edges) edge.slots = no_limit;
      const PlanningGraph graph(workload, Binding::late);
      Simulator simulator(graph);
      Random random(seed);
      DispatchRules rules = random_rules(workload, graph, random);
      rules.discipline = DispatchRules::Discipline::list;
      rules.theta.assign(graph.sections.size(), forward_first);
      const Schedule schedule = simulator.schedule(rules);
      std::vector<double> forward_end(workload.tasks.size());
      for (const PlannedPass& pass : schedule.passes) {
        if (!pass.backward) forward_end[pass.task] = pass.end_ms;
      }
      for (const PlannedPass& pass : schedule.passes) {
        if (pass.backward) continue;
        double ready_ms = 0;
        for (const TaskInput& input : workload.tasks[pass.task].inputs) {
          ready_ms = std::max(ready_ms, forward_end[input.task] + workload.edges[input.edge].transfer_ms);
        }
        if (pass.start_ms <= ready_ms + 1e-9) continue;
        const std::size_t section = workload.tasks[pass.task].section;
        for (std::int64_t replica = 0; replica < workload.sections[section].replicas; ++replica) {
          EXPECT_TRUE(busy_within(workload, schedule, section, replica, ready_ms, pass.start_ms))
              << generated.name << ", task " << pass.task;
        }
      }
    }
  }
}

TEST(Simulator, ends_early_when_every_schedule_of_the_rules_is_beyond_the_cutoff) {
  const Workload workload = flow_shop({{5, 2}, {1, 6}, {9, 7}, {3, 8}, {10, 4}});
  const PlanningGraph graph(workload, Binding::late);
  Simulator simulator(graph);
  const DispatchRules rules = list_rules(graph, {2, 6, 4, 8, 0, 3, 7, 5, 9, 1});  // Johnson's order
  EXPECT_EQ(simulator.run(rules, 30), 30);
  const std::int64_t whole = simulator.steps();
  EXPECT_EQ(simulator.run(rules, 30), 30);
  const std::int64_t again = simulator.steps();
  EXPECT_EQ(simulator.run(rules, 29), endless);
  EXPECT_LT(simulator.steps() - again, again - whole);
}

TEST(Simulator, rules_that_deadlock_cost_infinity) {  // VT-1
  // The section starts sample 1 first, whose input does not fit into the only slot together with sample 0's.
  Workload workload;
  workload.sections = {{"vision", false, 1, no_limit, {}}, {"llm", false, 1, no_limit, {}}};
  workload.edges = {{0, 1, 1, 0}};
  workload.tasks = {{0, 0, 1, 0, {}}, {0, 1, 1, 0, {}}, {1, 0, 1, 0, {{0, 0}}}, {1, 1, 1, 0, {{0, 1}}}};
  const PlanningGraph graph(workload, Binding::early);
  Simulator simulator(graph);
  DispatchRules rules = list_rules(graph, {0, 1, 3, 2});
  rules.discipline = DispatchRules::Discipline::section_order;
  EXPECT_EQ(simulator.run(rules, endless), endless);
  rules.order = {0, 1, 2, 3};
  EXPECT_EQ(simulator.run(rules, endless), 3);
}

TEST(Simulator, theta_decides_between_a_forward_pass_and_a_gradient) {
  // At 4, vision can encode sample 2 or run the gradient of sample 0, which arrived at 3.
  Workload workload;
  workload.sections = {{"vision", true, 1, no_limit, {}}, {"llm", true, 1, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}};
  for (std::size_t n = 0; n < 3; ++n) {
    workload.tasks.push_back({0, static_cast<std::int64_t>(n), 2, 4, {}});
    workload.tasks.push_back({1, static_cast<std::int64_t>(n), 0.5, 0.5, {{0, 2 * n}}});
  }
  const PlanningGraph graph(workload, Binding::late);
  Simulator simulator(graph);
  DispatchRules rules = list_rules(graph, {0, 2, 4, 1, 3, 5});
  const auto last_forward_ms = [&](double theta) {
    rules.theta = {theta, 0};
    double last_ms = 0;
    for (const PlannedPass& pass : simulator.schedule(rules).passes) {
      if (!pass.backward && pass.task == 4) last_ms = pass.start_ms;
    }
    return last_ms;
  };
  EXPECT_DOUBLE_EQ(last_forward_ms(1), 4);          // after the two earlier passes
  EXPECT_DOUBLE_EQ(last_forward_ms(0), 4 + 2 * 4);  // after their gradients, too
}

TEST(Simulator, a_pass_that_waits_at_its_end_for_a_slot_gives_way_to_a_gradient) {
  // The third image ends at 40, when the llm takes the second, and occupies the only slot until 140. The fourth ends at
  // 50 without a slot; the gradient of the first, which arrived at 44, takes its lane.
  Workload workload;
  workload.sections = {{"vision", true, 1, no_limit, {}}, {"llm", true, 1, no_limit, {}}};
  workload.edges = {{0, 1, 1, 4}};
  const std::array<double, 4> llm_ms{13, 50, 2.5, 2.5};
  for (std::size_t n = 0; n < llm_ms.size(); ++n) {
    workload.tasks.push_back({0, static_cast<std::int64_t>(n), 10, 20, {}});
    workload.tasks.push_back({1, static_cast<std::int64_t>(n), llm_ms[n], llm_ms[n], {{0, 2 * n}}});
  }
  const PlanningGraph graph(workload, Binding::late);
  Simulator simulator(graph);
  DispatchRules rules = list_rules(graph, {0, 2, 4, 6, 1, 3, 5, 7});
  rules.theta = {forward_first, 0};
  rules.foresee_slots = rules.whole_tasks = true;
  const Schedule schedule = simulator.schedule(rules);
  ASSERT_TRUE(check_schedule(workload, schedule).ok());
  const auto gradient =
      std::ranges::find_if(schedule.passes, [](const PlannedPass& pass) { return pass.task == 0 && pass.backward; });
  EXPECT_DOUBLE_EQ(gradient->start_ms, 50);
}

TEST(Simulator, reports_how_long_lanes_wait_and_how_much_of_their_work_is_late) {
  Workload workload;
  workload.sections = {{"vision", false, 1, no_limit, {}}, {"llm", false, 2, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}};
  workload.tasks = {{0, 0, 2, 0, {}}, {1, 0, 3, 0, {{0, 0}}}, {1, 1, 7, 0, {}}};
  const PlanningGraph graph(workload, Binding::late);
  Simulator simulator(graph);
  DispatchRules rules;
  rules.order = {0, 1, 2};
  rules.theta = {0.5, 0.5};
  EXPECT_DOUBLE_EQ(simulator.run(rules, 100), 7);
  EXPECT_DOUBLE_EQ(simulator.idle_ms(0), 0);
  EXPECT_DOUBLE_EQ(simulator.idle_ms(1), 2);      // the lane with its input at 2
  EXPECT_DOUBLE_EQ(simulator.late_ms(4), 1 + 3);  // the lanes end at 5 and 7, the encoder at 2
  EXPECT_DOUBLE_EQ(simulator.late_ms(7), 0);
  EXPECT_EQ(simulator.last_task(), 2);
}

}  // namespace
}  // namespace maestro
