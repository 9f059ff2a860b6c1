// SPDX-License-Identifier: Apache-2.0
// Policies and bounds if a section's lanes have different speeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "benchmarks/schedule/exhaustive.hpp"
#include "benchmarks/schedule/workload_generator.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/relative_speeds.hpp"
#include "runtime/wavefront/lower_bound.hpp"
#include "runtime/wavefront/policy.hpp"
#include "tests/wavefront/micro_batches.hpp"
#include "tests/wavefront/simulated_workloads.hpp"

namespace maestro {
namespace {

Schedule plan(std::string_view name, const Workload& workload, std::int64_t evaluations = 60) {
  PolicyOptions options;
  options.evaluations = evaluations;
  return make_policy(name, options)->plan(workload).value_or_throw();
}

/// Returns equal samples of 1 + 2 ms in a section whose lanes have these speeds.
Workload alike(std::size_t samples, std::vector<double> speeds) {
  Workload workload;
  workload.sections = {{"llm", true, std::ssize(speeds), no_limit, {}, std::move(speeds)}};
  for (std::size_t sample = 0; sample < samples; ++sample) {
    workload.tasks.push_back({0, static_cast<std::int64_t>(sample), 1, 2, {}});
  }
  return workload;
}

std::vector<std::int64_t> tasks_by_replica(const Workload& workload, const Schedule& schedule) {
  std::vector<std::int64_t> tasks(static_cast<std::size_t>(workload.sections[0].replicas));
  for (const PlannedPass& pass : schedule.passes) {
    if (!pass.backward) ++tasks[static_cast<std::size_t>(pass.replica)];
  }
  return tasks;
}

/// Gives the lanes of most sections different speeds.
void make_unequal(Workload& workload, Random& random) {
  for (WorkloadSection& section : workload.sections) {
    if (random.below(4) == 0) continue;
    std::vector<double> speeds;
    for (std::int64_t lane = 0; lane < section.replicas; ++lane) {
      speeds.push_back(1 / (1 + 0.25 * static_cast<double>(random.below(9))));
    }
    section.speeds = relative_speeds(std::move(speeds)).speeds;
  }
}

TEST(UnequalLanes, share_out_the_tasks_by_their_speeds) {
  for (const std::vector<double>& speeds : {std::vector{1.0, 0.5}, std::vector{0.5, 1.0}}) {
    const Workload workload = alike(30, speeds);
    for (const std::string_view name : {"wavefront", "bulk_synchronous"}) {
      const Schedule schedule = plan(name, workload);
      EXPECT_TRUE(check_schedule(workload, schedule).ok()) << name;
      EXPECT_NEAR(schedule.makespan_ms, 90 / 1.5, 1e-9) << name;
      const auto tasks = tasks_by_replica(workload, schedule);
      EXPECT_EQ(tasks, speeds[0] == 1 ? (std::vector<std::int64_t>{20, 10}) : (std::vector<std::int64_t>{10, 20}));
    }
    EXPECT_NEAR(lower_bound_ms(workload), 90 / 1.5, 1e-9);
    EXPECT_NEAR(plan("arrival", workload).makespan_ms, 15 * 3 / 0.5, 1e-9) << "goes round the replicas";
  }
}

TEST(UnequalLanes, a_slow_lane_leaves_the_last_tasks_to_a_faster_one) {
  EXPECT_NEAR(plan("wavefront", alike(4, {0.2, 1})).makespan_ms, 12, 1e-9);  // not 15
  EXPECT_NEAR(plan("wavefront", alike(7, {1, 0.5})).makespan_ms, 15, 1e-9);
  // The slow lane leaves no other tasks: the first rules that are tried distribute them.
  EXPECT_NEAR(plan("wavefront", alike(50, {0.25, 1}), 1).makespan_ms, 120, 1e-9);
}

TEST(UnequalLanes, obey_the_rules_under_every_policy) {  // PO-1, PO-3
  Random random(7);
  const auto check = [](const std::string& what, const Workload& workload) {
    const double bound = lower_bound_ms(workload);
    const double arrival_ms = plan("arrival", workload).makespan_ms;
    for (const std::string_view name : policy_names()) {
      const Schedule schedule = plan(name, workload);
      const Status legal = check_schedule(workload, schedule);
      EXPECT_TRUE(legal.ok()) << what << ", " << name << ": " << legal.error().message;
      EXPECT_GE(schedule.makespan_ms, bound * (1 - 1e-9)) << what << ", " << name;
      if (name == "wavefront") {
        EXPECT_LE(schedule.makespan_ms, arrival_ms * (1 + 1e-12)) << what;
      }
    }
  };
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    Workload tiny = generate_tiny_workload(workload_kinds()[seed % 4], seed, 7).workload;
    make_unequal(tiny, random);
    check("tiny, seed " + std::to_string(seed), tiny);
    Workload batches = micro_batch_workload(seed);
    if (seed % 3 == 0) spread_over_devices(batches, random);
    make_unequal(batches, random);
    check("micro-batches, seed " + std::to_string(seed), batches);
  }
  Workload large = generate_workload(workload_kinds()[0], 2).workload;
  make_unequal(large, random);
  check("large", large);
}

TEST(UnequalLanes, no_bound_is_beyond_the_shortest_schedule) {
  Random random(8);
  int proven = 0;
  int unequal = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Workload workload = generate_tiny_workload(workload_kinds()[seed % 4], seed, 4).workload;
    if (seed % 4 == 0) spread_over_devices(workload, random);
    make_unequal(workload, random);
    const ExhaustiveResult shortest = shortest_schedule(workload, 100'000);
    if (!shortest.proven) continue;
    ++proven;
    unequal += std::ranges::any_of(workload.sections, [](const auto& section) { return !section.speeds.empty(); });
    const Status legal = check_schedule(workload, shortest.schedule);
    EXPECT_TRUE(legal.ok()) << "seed " << seed << ": " << legal.error().message;
    EXPECT_LE(lower_bound_ms(workload), shortest.schedule.makespan_ms * (1 + 1e-9)) << "seed " << seed;
    EXPECT_GE(plan("wavefront", workload).makespan_ms, shortest.schedule.makespan_ms * (1 - 1e-9)) << "seed " << seed;
  }
  EXPECT_GT(proven, 80);
  EXPECT_GT(unequal, 50);
}

TEST(UnequalLanes, rules_of_every_kind_give_legal_schedules) {  // VT-1
  Random random(9);
  int ended = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Workload workload = micro_batch_workload(seed);
    make_unequal(workload, random);
    const PlanningGraph graph(workload, static_cast<Binding>(random.below(3)));
    Simulator simulator(graph);
    const DispatchRules rules = random_rules(workload, graph, random);
    if (simulator.run(rules, 1e12) > 1e12) continue;  // the rules deadlock
    ++ended;
    const Status legal = check_schedule(workload, simulator.schedule(rules));
    EXPECT_TRUE(legal.ok()) << "seed " << seed << ": " << legal.error().message;
  }
  EXPECT_GT(ended, 150);
}

TEST(RelativeSpeeds, are_by_the_fastest_and_none_where_all_are_equal) {
  const RelativeSpeeds unequal = relative_speeds({2, 4, 1});
  EXPECT_EQ(unequal.fastest, 4);
  EXPECT_EQ(unequal.speeds, (std::vector{0.5, 1.0, 0.25}));
  const RelativeSpeeds equal = relative_speeds({0.3, 0.3});
  EXPECT_EQ(equal.fastest, 0.3);
  EXPECT_TRUE(equal.speeds.empty());
}

}  // namespace
}  // namespace maestro
