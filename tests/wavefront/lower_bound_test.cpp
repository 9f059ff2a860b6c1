// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/lower_bound.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>

#include "benchmarks/schedule/exhaustive.hpp"
#include "benchmarks/schedule/workload_generator.hpp"
#include "runtime/wavefront/parallel_bound.hpp"

namespace maestro {
namespace {

TEST(LowerBound, of_nothing_is_zero) {
  EXPECT_EQ(lower_bound_ms({}), 0);
}

TEST(LowerBound, one_sample_takes_its_path_forward_and_back) {
  Workload workload;
  workload.sections = {{"vision", true, 3, 2, {}}, {"llm", true, 2, 1, {}}};
  workload.edges = {{0, 1, 1, 0.5}};
  workload.tasks = {{0, 0, 2, 4, {}}, {1, 0, 3, 6, {{0, 0}}}};
  EXPECT_DOUBLE_EQ(lower_bound_ms(workload), 2 + 0.5 + 3 + 6 + 0.5 + 4);
}

Workload alike(std::size_t samples, std::int64_t replicas) {
  Workload workload;
  workload.sections = {{"llm", true, replicas, no_limit, {}}};
  for (std::size_t sample = 0; sample < samples; ++sample) {
    workload.tasks.push_back({0, static_cast<std::int64_t>(sample), 1, 2, {}});
  }
  return workload;
}

TEST(LowerBound, some_lane_runs_whole_samples_beyond_the_average) {
  EXPECT_DOUBLE_EQ(lower_bound_ms(alike(6, 3)), 6);
  EXPECT_DOUBLE_EQ(lower_bound_ms(alike(7, 3)), 9);  // the average is 7
}

TEST(LowerBound, lanes_of_one_device_count_once) {
  Workload workload = alike(6, 3);
  workload.sections[0].devices = {{0}, {0}, {1}};
  EXPECT_DOUBLE_EQ(lower_bound_ms(workload), 9);
  workload.sections.push_back({"judge", false, 1, no_limit, {{1}}});
  workload.edges = {{0, 1, no_limit, 0}};
  workload.tasks.push_back({1, 0, 6, 0, {{0, 0}}});
  EXPECT_DOUBLE_EQ(lower_bound_ms(workload), 12);  // 18 + 6 on two devices
}

TEST(LowerBound, lanes_that_have_a_device_in_common_run_one_at_a_time) {
  Workload workload = alike(2, 1);
  workload.sections[0].devices = {{0, 1}};
  workload.sections.push_back({"judge", false, 1, no_limit, {{1}}});
  for (std::int64_t sample = 0; sample < 3; ++sample) workload.tasks.push_back({1, sample, 4, 0, {}});
  EXPECT_DOUBLE_EQ(lower_bound_ms(workload), 6 + 12);  // on device 1
}

TEST(LowerBound, a_lane_of_several_devices_takes_its_time_on_each) {
  // Any two lanes overlap, but no device is in all three: 6 samples of 3 ms, on two devices each.
  Workload workload = alike(6, 3);
  workload.sections[0].devices = {{0, 1}, {1, 2}, {2, 0}};
  EXPECT_DOUBLE_EQ(lower_bound_ms(workload), 6 * 3 * 2 / 3);
  workload.sections[0].devices = {{0, 1}, {2, 3}, {4, 5}};
  EXPECT_DOUBLE_EQ(lower_bound_ms(workload), 6);
}

TEST(LowerBound, lanes_wait_for_the_first_pictures_in_turn) {
  // A single encoder serves four lanes: their first inputs are ready at 1, 2, 3 and 4, and each has 60 to do.
  Workload workload;
  workload.sections = {{"vision", false, 1, no_limit, {}}, {"llm", true, 4, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}};
  for (std::size_t sample = 0; sample < 8; ++sample) {
    workload.tasks.push_back({0, static_cast<std::int64_t>(sample), 1, 0, {}});
    workload.tasks.push_back({1, static_cast<std::int64_t>(sample), 10, 20, {{0, 2 * sample}}});
  }
  EXPECT_DOUBLE_EQ(lower_bound_ms(workload), 60 + (1 + 2 + 3 + 4) / 4.0);
}

TEST(LowerBound, a_sample_in_flight_keeps_its_place_until_its_gradient_is_back) {
  Workload workload;
  workload.sections = {{"vision", true, 1, 1, {}}, {"llm", true, 8, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 1}};
  for (std::size_t sample = 0; sample < 5; ++sample) {
    workload.tasks.push_back({0, static_cast<std::int64_t>(sample), 1, 2, {}});
    workload.tasks.push_back({1, static_cast<std::int64_t>(sample), 10, 20, {{0, 2 * sample}}});
  }
  EXPECT_DOUBLE_EQ(lower_bound_ms(workload), 5 * (1 + 1 + 10 + 20 + 1 + 2));
  workload.sections[0].max_in_flight = 5;
  EXPECT_LT(lower_bound_ms(workload), 2 * 35);
}

/// Returns three samples whose two stages take the given times, in sections with a single lane; `between` has the times
/// of two parallel sections that join the stages.
Workload diamond(const std::vector<std::pair<double, double>>& stages, std::pair<double, double> between) {
  Workload workload;
  workload.sections = {{"vision", true, 1, no_limit, {}},
                       {"resampler", false, 3, no_limit, {}},
                       {"audio", false, 3, no_limit, {}},
                       {"llm", false, 1, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}, {0, 2, no_limit, 0}, {1, 3, no_limit, 0}, {2, 3, no_limit, 0}};
  for (std::size_t sample = 0; sample < stages.size(); ++sample) {
    const auto id = static_cast<std::int64_t>(sample);
    const std::size_t first = workload.tasks.size();
    workload.tasks.push_back({0, id, stages[sample].first, 1, {}});
    workload.tasks.push_back({1, id, between.first, 0, {{0, first}}});
    workload.tasks.push_back({2, id, between.second, 0, {{1, first}}});
    workload.tasks.push_back({3, id, stages[sample].second, 0, {{2, first + 1}, {3, first + 2}}});
  }
  return workload;
}

TEST(LowerBound, the_longer_of_two_paths_lies_between_two_stages) {
  // Johnson's order of the stages is the sample order; without the time between the stages, the second would end at 14.
  EXPECT_DOUBLE_EQ(lower_bound_ms(diamond({{1, 3}, {5, 6}, {4, 2}}, {1, 10})), 14 + 10);
  EXPECT_DOUBLE_EQ(lower_bound_ms(diamond({{1, 3}, {5, 6}, {4, 2}}, {10, 1})), 14 + 10);
}

TEST(LowerBound, a_middle_stage_counts_with_the_shortest_time_behind_it) {
  // Johnson's order (3, 5), (8, 7), (4, 2) ends at 20, and each sample still takes at least 2.
  Workload workload;
  workload.sections = {{"vision", true, 1, no_limit, {}}, {"llm", false, 1, no_limit, {}}, {"judge", false, 3, 0, {}}};
  workload.edges = {{0, 1, no_limit, 0}, {1, 2, no_limit, 0}};
  const std::vector<std::array<double, 3>> samples = {{3, 5, 2}, {4, 2, 3}, {8, 7, 4}};
  for (std::size_t sample = 0; sample < samples.size(); ++sample) {
    const auto id = static_cast<std::int64_t>(sample);
    workload.tasks.push_back({0, id, samples[sample][0], 1, {}});
    workload.tasks.push_back({1, id, samples[sample][1], 0, {{0, 3 * sample}}});
    workload.tasks.push_back({2, id, samples[sample][2], 0, {{1, 3 * sample + 1}}});
  }
  EXPECT_DOUBLE_EQ(lower_bound_ms(workload), 20 + 2);
}

TEST(PreemptiveSchrage, is_exact_on_a_known_instance) {
  // Carlier 1982, table 1: heads, bodies and tails of seven jobs; the middle three add up to 11 + 17 + 21.
  const std::vector<BoundedJob> jobs = {{10, 5, 7}, {13, 6, 26}, {11, 7, 24}, {20, 4, 21},
                                        {30, 3, 8}, {0, 6, 17},  {30, 2, 0}};
  EXPECT_DOUBLE_EQ(preemptive_schrage(jobs), 49);
}

TEST(ParallelBound, takes_the_smallest_heads_and_tails_once_each) {
  const std::vector<BoundedJob> jobs = {{1, 10, 4}, {2, 10, 3}, {3, 10, 2}, {9, 10, 9}};
  EXPECT_DOUBLE_EQ(parallel_bound(jobs, 2), (1 + 2 + 40 + 2 + 3) / 2.0);
}

/// Returns the bound by definition: the largest over all l and k; parallel_bound() considers two k for each l.
double parallel_bound_over_all(std::vector<BoundedJob> jobs, std::size_t machines, const EdgeSums& edges) {
  std::ranges::sort(jobs, std::greater<>(), &BoundedJob::body);
  double bound = 0;
  for (std::size_t l = machines; l <= jobs.size(); ++l) {
    std::vector<double> heads;
    std::vector<double> tails;
    for (std::size_t at = 0; at < l; ++at) {
      heads.push_back(jobs[at].head);
      tails.push_back(jobs[at].tail);
    }
    std::ranges::sort(heads);
    std::ranges::sort(tails);
    double before = 0;
    double after = 0;
    for (std::size_t k = 1; k <= machines; ++k) {
      before += heads[k - 1];
      after += tails[k - 1];
      double body = 0;
      for (std::size_t at = 0; at < k * (l / machines) + std::min(k, l % machines); ++at) body += jobs[l - 1 - at].body;
      const double first = edges.before.empty() ? 0 : edges.before[k];
      const double last = edges.after.empty() ? 0 : edges.after[k];
      bound = std::max(bound, (std::max(before, first) + body + std::max(after, last)) / static_cast<double>(k));
    }
  }
  return bound;
}

TEST(ParallelBound, is_the_largest_over_all_numbers_of_machines) {
  std::mt19937_64 random(23);
  const auto up_to = [&](std::uint64_t most) { return static_cast<double>(random() % (most + 1)); };
  for (int turn = 0; turn < 400; ++turn) {
    const std::size_t machines = 1 + random() % 9;
    std::vector<BoundedJob> jobs(machines + random() % 20);
    for (BoundedJob& job : jobs) job = {up_to(turn % 3 == 0 ? 0 : 20), up_to(30), up_to(turn % 5 == 0 ? 0 : 20)};
    EdgeSums edges;
    if (turn % 2 == 1) {
      std::vector<double> starts(machines);
      for (double& start : starts) start = up_to(25);
      std::ranges::sort(starts);
      edges.before.push_back(0);
      for (const double start : starts) edges.before.push_back(edges.before.back() + start);
    }
    EXPECT_NEAR(parallel_bound(jobs, machines, edges), parallel_bound_over_all(jobs, machines, edges), 1e-9)
        << "turn " << turn;
  }
}

/// Small workloads of a kind and seed: no legal schedule is shorter than the bound.
class LowerBoundOfTinyWorkloads : public testing::TestWithParam<WorkloadKind> {};

TEST_P(LowerBoundOfTinyWorkloads, is_never_beyond_the_shortest_schedule) {
  int proven = 0;
  int reached = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const GeneratedWorkload generated = generate_tiny_workload(GetParam(), seed, 5);
    const ExhaustiveResult shortest = shortest_schedule(generated.workload, 20'000);
    if (shortest.schedule.passes.empty()) continue;  // stopped before the first schedule
    const Status legal = check_schedule(generated.workload, shortest.schedule);
    ASSERT_TRUE(legal.ok()) << generated.name << ": " << legal.error().message;
    const double bound = lower_bound_ms(generated.workload);
    ASSERT_LE(bound, shortest.schedule.makespan_ms + 1e-9) << generated.name << " proven " << shortest.proven;
    proven += shortest.proven;
    reached += bound >= shortest.schedule.makespan_ms - 1e-9;
  }
  RecordProperty("proven", proven);
  RecordProperty("reached", reached);
  EXPECT_GE(proven, 100);
  EXPECT_GE(reached, 40);
}

INSTANTIATE_TEST_SUITE_P(Kinds, LowerBoundOfTinyWorkloads, testing::ValuesIn(workload_kinds()),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

}  // namespace
}  // namespace maestro
