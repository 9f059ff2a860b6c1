// SPDX-License-Identifier: Apache-2.0
// PO-1 .. PO-3 of runtime/wavefront/policy.hpp, and each policy's invariants.
#include "runtime/wavefront/policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "benchmarks/schedule/exhaustive.hpp"
#include "benchmarks/schedule/workload_generator.hpp"
#include "runtime/core/random.hpp"
#include "runtime/wavefront/lower_bound.hpp"
#include "tests/wavefront/micro_batches.hpp"
#include "tests/wavefront/simulated_workloads.hpp"

namespace maestro {
namespace {

PolicyOptions short_search() {
  PolicyOptions options;
  options.evaluations = 60;
  return options;
}

Schedule plan(std::string_view name, const Workload& workload, const PolicyOptions& options = short_search()) {
  return make_policy(name, options)->plan(workload).value_or_throw();
}

void expect_legal_under_every_policy(const std::string& what, const Workload& workload) {
  double arrival_ms = 0;
  for (const std::string_view name : policy_names()) {
    const Result<Schedule> schedule = make_policy(name, short_search())->plan(workload);
    ASSERT_TRUE(schedule.ok()) << what << ", " << name << ": " << schedule.error().message;
    const Status legal = check_schedule(workload, *schedule);
    EXPECT_TRUE(legal.ok()) << what << ", " << name << ": " << legal.error().message;
    EXPECT_GE(schedule->makespan_ms, lower_bound_ms(workload) * (1 - 1e-9)) << what << ", " << name;
    if (name == "arrival") arrival_ms = schedule->makespan_ms;
    if (name == "wavefront") {
      EXPECT_LE(schedule->makespan_ms, arrival_ms * (1 + 1e-12)) << what;  // PO-3, WF-1
    }
  }
}

TEST(SchedulingPolicies, obey_the_rules_on_generated_workloads) {  // PO-1, PO-3
  for (const WorkloadKind kind : workload_kinds()) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const GeneratedWorkload generated = generate_workload(kind, seed);
      expect_legal_under_every_policy(generated.name, generated.workload);
    }
  }
}

TEST(SchedulingPolicies, obey_the_rules_on_tiny_workloads_with_limits_of_every_kind) {  // PO-1, PO-3
  for (const WorkloadKind kind : workload_kinds()) {
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
      const GeneratedWorkload generated = generate_tiny_workload(kind, seed, 7);
      expect_legal_under_every_policy(generated.name, generated.workload);
    }
  }
}

TEST(SchedulingPolicies, never_deadlock_under_any_slots_and_in_flight_limits) {  // PO-1
  for (const WorkloadKind kind : workload_kinds()) {
    Workload workload = generate_tiny_workload(kind, 11, 40).workload;
    for (std::int64_t slots = 1; slots <= 4; ++slots) {
      for (std::int64_t in_flight = 1; in_flight <= 8; ++in_flight) {
        for (WorkloadEdge& edge : workload.edges) edge.slots = slots;
        for (WorkloadSection& section : workload.sections) section.max_in_flight = in_flight;
        expect_legal_under_every_policy(std::string(name_of(kind)) + ", slots " + std::to_string(slots) +
                                            ", in flight " + std::to_string(in_flight),
                                        workload);
      }
    }
  }
}

TEST(SchedulingPolicies, obey_the_rules_on_micro_batches_that_do_not_match_one_to_one) {  // PO-1, PO-3
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    expect_legal_under_every_policy("micro-batches, seed " + std::to_string(seed), micro_batch_workload(seed));
  }
}

TEST(SchedulingPolicies, obey_the_rules_where_lanes_take_several_devices) {  // PO-1, PO-3
  Random random(3);
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    Workload tiny = generate_tiny_workload(workload_kinds()[seed % 4], seed, 5).workload;
    spread_over_devices(tiny, random);
    expect_legal_under_every_policy("tiny, seed " + std::to_string(seed), tiny);
    Workload batches = micro_batch_workload(seed);
    spread_over_devices(batches, random);
    expect_legal_under_every_policy("micro-batches, seed " + std::to_string(seed), batches);
  }
}

TEST(SchedulingPolicies, no_bound_is_beyond_the_shortest_schedule_on_sets_of_devices) {
  Random random(4);
  int proven = 0;
  for (std::uint64_t seed = 1; seed <= 160; ++seed) {
    Workload workload = generate_tiny_workload(workload_kinds()[seed % 4], seed, 4).workload;
    spread_over_devices(workload, random);
    const ExhaustiveResult shortest = shortest_schedule(workload, 100'000);
    if (!shortest.proven) continue;
    ++proven;
    const Status legal = check_schedule(workload, shortest.schedule);
    EXPECT_TRUE(legal.ok()) << "seed " << seed << ": " << legal.error().message;
    EXPECT_LE(lower_bound_ms(workload), shortest.schedule.makespan_ms * (1 + 1e-9)) << "seed " << seed;
    EXPECT_GE(plan("wavefront", workload).makespan_ms, shortest.schedule.makespan_ms * (1 - 1e-9)) << "seed " << seed;
  }
  EXPECT_GT(proven, 60);
}

TEST(SchedulingPolicies, answer_an_empty_workload_with_an_empty_schedule) {
  Workload workload;
  workload.sections.push_back({"llm", true, 2, no_limit, {}});
  for (const std::string_view name : policy_names()) {
    EXPECT_TRUE(plan(name, workload).passes.empty()) << name;
    EXPECT_EQ(plan(name, workload).makespan_ms, 0) << name;
  }
}

TEST(SchedulingPolicies, give_the_same_schedule_again_when_deterministic) {  // PO-2
  for (const WorkloadKind kind : workload_kinds()) {
    const Workload workload = generate_workload(kind, 3).workload;
    for (const std::string_view name : policy_names()) {
      const Schedule first = plan(name, workload);
      const Schedule second = plan(name, workload);
      ASSERT_EQ(first.passes.size(), second.passes.size());
      for (std::size_t n = 0; n < first.passes.size(); ++n) {
        const PlannedPass& a = first.passes[n];
        const PlannedPass& b = second.passes[n];
        EXPECT_EQ(std::tie(a.task, a.backward, a.replica, a.start_ms),
                  std::tie(b.task, b.backward, b.replica, b.start_ms));
      }
    }
  }
}

TEST(SchedulingPolicies, name_the_section_and_limit_that_leave_no_schedule) {
  // An output goes to two tasks of the only replica, whose ring has a single slot.
  Workload workload;
  workload.sections = {{"vision", true, 1, no_limit, {}}, {"llm", true, 1, no_limit, {}}};
  workload.edges = {{0, 1, 1, 0}};
  workload.tasks = {task(0, 5, 1, 1), task(1, 5, 1, 1, {{0, 0}}), task(1, 6, 1, 1, {{0, 0}})};
  for (const std::string_view name : policy_names()) {
    const Result<Schedule> schedule = make_policy(name, short_search())->plan(workload);
    ASSERT_FALSE(schedule.ok()) << name;
    EXPECT_THAT(schedule.error().message,
                testing::AllOf(testing::HasSubstr("llm"), testing::HasSubstr("slots 1"), testing::HasSubstr("vision")));
  }
}

TEST(SchedulingPolicies, name_the_nearest_policy_for_an_unknown_one) {
  try {
    make_policy("wavefrnt");
    FAIL();
  } catch (const JobError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean \"wavefront\"?"));
  }
  for (const std::string_view name : policy_names()) EXPECT_EQ(make_policy(name)->name(), name);
}

TEST(SchedulingPolicies, only_the_bulk_synchronous_one_waits_at_the_end_of_a_step) {
  for (const std::string_view name : policy_names()) {
    EXPECT_EQ(make_policy(name)->synchronous(), name == "bulk_synchronous");
  }
}

TEST(Arrival, deals_tasks_round_robin_and_runs_them_in_order) {
  const Workload workload = generate_workload(WorkloadKind::distillation, 1).workload;
  const Schedule schedule = plan("arrival", workload);
  std::vector<std::int64_t> seen(workload.sections.size());
  std::vector<std::int64_t> replica(workload.tasks.size());
  for (std::size_t n = 0; n < workload.tasks.size(); ++n) {
    const std::size_t section = workload.tasks[n].section;
    replica[n] = seen[section]++ % workload.sections[section].replicas;
  }
  std::map<std::pair<std::size_t, std::int64_t>, std::size_t> last;
  for (const PlannedPass& pass : schedule.passes) {
    EXPECT_EQ(pass.replica, replica[pass.task]);
    if (pass.backward) continue;
    const std::pair lane(workload.tasks[pass.task].section, pass.replica);
    if (const auto before = last.find(lane); before != last.end()) {
      EXPECT_LT(before->second, pass.task);
    }
    last[lane] = pass.task;
  }
}

/// Johnson 1954: if min(a_i, b_j) <= min(a_j, b_i), sample i goes before j.
double johnson_ms(std::vector<std::pair<double, double>> samples) {
  std::sort(samples.begin(), samples.end(), [](const auto& x, const auto& y) {
    const auto key = [](const auto& s) {
      return std::pair(s.first < s.second ? 0 : 1, s.first < s.second ? s.first : -s.second);
    };
    return key(x) < key(y);
  });
  double first = 0;
  double second = 0;
  for (const auto& [a, b] : samples) {
    first += a;
    second = std::max(first, second) + b;
  }
  return second;
}

TEST(Wavefront, is_optimal_on_two_lanes_in_a_row_without_backward_passes) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    Workload workload;
    workload.sections = {{"vision", false, 1, no_limit, {}}, {"llm", false, 1, no_limit, {}}};
    workload.edges = {{0, 1, no_limit, 0}};
    std::vector<std::pair<double, double>> samples;
    for (std::int64_t sample = 0; sample < 20; ++sample) {
      const double vision_ms = random.below(4) == 0 ? 0 : static_cast<double>(1 + random.below(20));
      const double llm_ms = static_cast<double>(1 + random.below(20));
      samples.emplace_back(vision_ms, llm_ms);
      std::vector<TaskInput> inputs;
      if (vision_ms > 0) {
        inputs = {{0, workload.tasks.size()}};
        workload.tasks.push_back(task(0, sample, vision_ms, 0));
      }
      workload.tasks.push_back(task(1, sample, llm_ms, 0, inputs));
    }
    EXPECT_DOUBLE_EQ(plan("wavefront", workload).makespan_ms, johnson_ms(samples)) << "seed " << seed;
  }
}

TEST(Wavefront, is_within_two_percent_of_the_optimum_on_small_workloads) {
  double sum = 0;
  int count = 0;
  for (const WorkloadKind kind : workload_kinds()) {
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
      const GeneratedWorkload generated = generate_tiny_workload(kind, seed, 4);
      const ExhaustiveResult optimum = shortest_schedule(generated.workload, 200'000);
      if (!optimum.proven) continue;
      PolicyOptions options;
      options.evaluations = 2000;
      const double ratio = plan("wavefront", generated.workload, options).makespan_ms / optimum.schedule.makespan_ms;
      EXPECT_GE(ratio, 1 - 1e-9) << generated.name;
      EXPECT_LE(ratio, 1.25) << generated.name;
      sum += ratio;
      ++count;
    }
  }
  ASSERT_GT(count, 40);
  EXPECT_LE(sum / count, 1.02);
}

TEST(Wavefront, plans_no_longer_than_any_order_of_the_portfolio) {  // WF-1
  for (const WorkloadKind kind : workload_kinds()) {
    for (std::uint64_t seed = 1; seed <= 15; ++seed) {
      const GeneratedWorkload generated = generate_tiny_workload(kind, seed, 12);
      const PlanningGraph graph(generated.workload, Binding::late);
      const Anchors anchors(generated.workload, graph);
      Simulator simulator(graph);
      double best_ms = std::numeric_limits<double>::infinity();
      for (const std::vector<int>& order : anchor_orders(anchors)) {
        DispatchRules rules = list_rules(graph, spread_order(graph, anchors, order));
        rules.depth.assign(graph.edges.size(), 1.0);
        for (const bool hungry : {true, false}) {
          rules.hungry_producers_first = hungry;
          best_ms = std::min(best_ms, simulator.run(rules, best_ms));
        }
      }
      PolicyOptions options;
      options.evaluations = 2000;
      EXPECT_LE(plan("wavefront", generated.workload, options).makespan_ms, 1.001 * best_ms) << generated.name;
    }
  }
}

TEST(Wavefront, ends_before_its_budget_with_a_schedule_near_the_lower_bound) {  // WF-2
  Workload workload;
  workload.sections = {{"llm", true, 2, no_limit, {}}};
  for (std::int64_t sample = 0; sample < 8; ++sample) workload.tasks.push_back(task(0, sample, 1, 2));
  PolicyOptions options;
  options.deterministic = false;
  options.budget_ms = 3'600'000;  // the test times out if the search does not end early
  EXPECT_DOUBLE_EQ(plan("wavefront", workload, options).makespan_ms, lower_bound_ms(workload));
}

TEST(Wavefront, is_near_the_lower_bound_on_generated_workloads) {  // the documented mean, with the default budget
  double sum = 0;
  int count = 0;
  for (const WorkloadKind kind : workload_kinds()) {
    for (std::uint64_t seed = 21; seed <= 24; ++seed) {
      const GeneratedWorkload generated = generate_workload(kind, seed);
      const double ratio = plan("wavefront", generated.workload, {}).makespan_ms / lower_bound_ms(generated.workload);
      EXPECT_LE(ratio, 1.1) << generated.name;
      sum += ratio;
      ++count;
    }
  }
  EXPECT_LE(sum / count, 1.015);
}

TEST(Wavefront, is_near_the_lower_bound_with_heavy_tails_and_few_tasks_in_flight) {
  double sum = 0;
  int count = 0;
  for (const WorkloadKind kind : {WorkloadKind::vision_language, WorkloadKind::distillation}) {
    for (std::uint64_t seed = 1000; seed < 1008; ++seed) {
      const GeneratedWorkload generated = generate_workload(kind, seed, WorkloadLayout::heavy);
      const double ratio = plan("wavefront", generated.workload, {}).makespan_ms / lower_bound_ms(generated.workload);
      EXPECT_LE(ratio, 1.05) << generated.name;
      sum += ratio;
      ++count;
    }
  }
  EXPECT_LE(sum / count, 1.009);
}

TEST(Wavefront, plans_no_longer_with_a_larger_budget) {  // WF-3
  int shortened = 0;
  for (const WorkloadKind kind : workload_kinds()) {
    for (const std::uint64_t seed : {41, 42}) {
      const GeneratedWorkload generated = generate_workload(kind, seed, WorkloadLayout::tight);
      double last_ms = std::numeric_limits<double>::infinity();
      double first_ms = 0;
      for (const std::int64_t evaluations : {1, 3, 10, 40, 100, 150, 300}) {
        PolicyOptions options;
        options.evaluations = evaluations;
        const double makespan_ms = plan("wavefront", generated.workload, options).makespan_ms;
        EXPECT_LE(makespan_ms, last_ms) << generated.name << ", " << evaluations;
        last_ms = makespan_ms;
        if (evaluations == 1) first_ms = makespan_ms;
      }
      shortened += last_ms < first_ms ? 1 : 0;
    }
  }
  EXPECT_GE(shortened, 6);
}

TEST(Wavefront, plans_by_the_portfolio_when_there_is_no_time_at_all) {  // WF-3
  const Workload workload = generate_workload(WorkloadKind::distillation, 41).workload;
  PolicyOptions first;
  first.evaluations = 1;
  PolicyOptions hurried;
  hurried.deterministic = false;
  hurried.budget_ms = 1e-6;
  const double hurried_ms = plan("wavefront", workload, hurried).makespan_ms;
  EXPECT_EQ(hurried_ms, plan("wavefront", workload, first).makespan_ms);
  EXPECT_LT(hurried_ms, plan("arrival", workload).makespan_ms);
}

TEST(Wavefront, many_lanes_share_the_one_slot_of_the_section_they_feed) {  // 1.6 if slots were held for complete passes
  for (const std::uint64_t seed : {504, 505}) {
    const GeneratedWorkload generated = generate_workload(WorkloadKind::generation, seed);
    const Schedule schedule = plan("wavefront", generated.workload, {});
    const Status legal = check_schedule(generated.workload, schedule);
    EXPECT_TRUE(legal.ok()) << generated.name << ": " << legal.error().message;
    EXPECT_LE(schedule.makespan_ms, 1.1 * lower_bound_ms(generated.workload)) << generated.name;
  }
}

TEST(Wavefront, packs_samples_without_upstream_work_first_and_each_sample_once) {
  const Workload workload = generate_workload(WorkloadKind::vision_language, 2).workload;
  std::int64_t last = 0;
  std::set<std::int64_t> with_pictures;
  for (const WorkloadTask& one : workload.tasks) {
    last = std::max(last, one.sample);
    if (one.section == 0) with_pictures.insert(one.sample);
  }
  const auto count = static_cast<std::size_t>(last) + 1;
  const std::vector<std::size_t> order = make_policy("wavefront")->packing_order(workload, count);
  std::vector<std::size_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  EXPECT_EQ(sorted, all);
  const std::size_t text_only = count - with_pictures.size();
  for (std::size_t n = 0; n < count; ++n) {
    EXPECT_EQ(with_pictures.count(static_cast<std::int64_t>(order[n])), n < text_only ? 0U : 1U) << "place " << n;
  }
  EXPECT_EQ(make_policy("arrival")->packing_order(workload, count), all);
  EXPECT_EQ(make_policy("bulk_synchronous")->packing_order(workload, count), all);
}

}  // namespace
}  // namespace maestro
