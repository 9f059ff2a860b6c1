// SPDX-License-Identifier: Apache-2.0
// BS-1 .. BS-3 of runtime/wavefront/bulk_synchronous.hpp: rounds and phases of the baseline.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "benchmarks/schedule/workload_generator.hpp"
#include "runtime/wavefront/policy.hpp"
#include "tests/wavefront/simulated_workloads.hpp"

namespace maestro {
namespace {

Schedule plan(const Workload& workload) {
  return make_policy("bulk_synchronous", {})->plan(workload).value_or_throw();
}

TEST(BulkSynchronous, runs_one_section_at_a_time_within_a_group) {  // BS-1, BS-2
  for (const WorkloadKind kind : workload_kinds()) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const GeneratedWorkload generated = generate_workload(kind, seed);
      const Schedule schedule = plan(generated.workload);
      std::map<std::pair<std::int64_t, std::int64_t>, std::pair<double, double>> phases;  // start, end
      std::map<std::pair<std::int64_t, std::int64_t>, std::set<std::size_t>> sections;
      for (const PlannedPass& pass : schedule.passes) {
        const std::pair key(pass.group, pass.phase);
        auto [entry, fresh] = phases.try_emplace(key, pass.start_ms, pass.end_ms);
        entry->second.first = std::min(entry->second.first, pass.start_ms);
        entry->second.second = std::max(entry->second.second, pass.end_ms);
        sections[key].insert(generated.workload.tasks[pass.task].section);
      }
      const std::pair<const std::pair<std::int64_t, std::int64_t>, std::pair<double, double>>* before = nullptr;
      for (const auto& phase : phases) {
        if (before && before->first.first == phase.first.first) {
          EXPECT_LE(before->second.second, phase.second.first + 1e-9) << generated.name;
        }
        EXPECT_EQ(sections[phase.first].size(), 1U) << generated.name;
        before = &phase;
      }
    }
  }
}

TEST(BulkSynchronous, a_share_without_limits_goes_through_in_one_round) {
  // Two replicas each: samples 0 and 1 are in the first group, 2 and 3 in the second.
  Workload workload;
  workload.sections = {{"vision", true, 2, no_limit, {}}, {"llm", true, 2, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}};
  for (std::int64_t sample = 0; sample < 4; ++sample) {
    workload.tasks.push_back(task(0, sample, 1, 2));
    workload.tasks.push_back(task(1, sample, 3, 6, {{0, workload.tasks.size() - 1}}));
  }
  const Schedule schedule = plan(workload);
  EXPECT_TRUE(check_schedule(workload, schedule).ok());
  EXPECT_DOUBLE_EQ(schedule.makespan_ms, 2 * (1 + 3 + 6 + 2));
  for (const PlannedPass& pass : schedule.passes) {
    EXPECT_EQ(pass.group, workload.tasks[pass.task].sample / 2);
    EXPECT_LE(pass.phase, 2);
  }
}

TEST(BulkSynchronous, slots_split_a_share_into_rounds) {  // BS-3
  Workload workload;
  workload.sections = {{"vision", false, 1, no_limit, {}}, {"llm", true, 1, no_limit, {}}};
  workload.edges = {{0, 1, 2, 0}};
  for (std::int64_t sample = 0; sample < 5; ++sample) {
    workload.tasks.push_back(task(0, sample, 1, 0));
    workload.tasks.push_back(task(1, sample, 3, 6, {{0, workload.tasks.size() - 1}}));
  }
  const Schedule schedule = plan(workload);
  EXPECT_TRUE(check_schedule(workload, schedule).ok());
  std::int64_t last_phase = 0;
  for (const PlannedPass& pass : schedule.passes) last_phase = std::max(last_phase, pass.phase);
  EXPECT_EQ(last_phase, 5);  // rounds of 2, 2 and 1 samples, two phases each
}

TEST(BulkSynchronous, in_flight_limits_split_a_share_into_rounds) {  // BS-3
  Workload workload;
  workload.sections = {{"vision", true, 1, 2, {}}, {"llm", true, 1, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}};
  for (std::int64_t sample = 0; sample < 5; ++sample) {
    workload.tasks.push_back(task(0, sample, 1, 2));
    workload.tasks.push_back(task(1, sample, 3, 6, {{0, workload.tasks.size() - 1}}));
  }
  const Schedule schedule = plan(workload);
  EXPECT_TRUE(check_schedule(workload, schedule).ok());
  std::map<std::int64_t, int> passes;  // by phase
  for (const PlannedPass& pass : schedule.passes) ++passes[pass.phase];
  // Rounds of 2, 2 and 1 samples, three phases each; the llm's phase has both passes.
  EXPECT_EQ(passes,
            (std::map<std::int64_t, int>{{0, 2}, {1, 4}, {2, 2}, {3, 2}, {4, 4}, {5, 2}, {6, 1}, {7, 2}, {8, 1}}));
}

TEST(BulkSynchronous, the_replicas_of_a_group_share_its_tasks_evenly) {
  Workload workload;
  workload.sections = {{"vision", false, 4, no_limit, {}}, {"llm", true, 1, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}};
  for (std::int64_t sample = 0; sample < 8; ++sample) {
    workload.tasks.push_back(task(0, sample, 1, 0));
    workload.tasks.push_back(task(1, sample, 3, 6, {{0, workload.tasks.size() - 1}}));
  }
  const Schedule schedule = plan(workload);
  EXPECT_TRUE(check_schedule(workload, schedule).ok());
  EXPECT_DOUBLE_EQ(schedule.makespan_ms, 2 + 8 * 9);
}

}  // namespace
}  // namespace maestro
