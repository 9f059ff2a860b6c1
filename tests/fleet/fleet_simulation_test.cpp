// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/fleet_simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "apps/fleet/fleet_figures.hpp"
#include "runtime/core/random.hpp"
#include "tests/fleet/fleets.hpp"

namespace maestro {
namespace {

constexpr double s = 1e3;  // milliseconds

struct Fleet {
  FleetCluster cluster;
  FleetJobs jobs;
  std::vector<FleetJob> drawn;

  [[nodiscard]] FleetResult run(const FleetOptions& options) const {
    return simulate_fleet(cluster, curves_of(jobs, cluster), drawn, options);
  }
};

/// Checks FX-1 and FX-2 with the spans of a result.
void expect_conserved(const Fleet& fleet, const FleetResult& result) {
  ASSERT_EQ(result.jobs.size(), fleet.drawn.size());
  std::vector<double> steps(result.jobs.size());
  std::map<std::size_t, double> last_s;
  std::vector<std::map<double, std::int64_t>> changes(fleet.cluster.pools.size());  // in number of used devices
  for (const FleetSpan& span : result.spans) {
    const double from_s = last_s.try_emplace(span.job, span.from_s).first->second;
    ASSERT_EQ(span.from_s, from_s) << "a job has no gap";
    last_s[span.job] = span.to_s;
    steps[span.job] += std::max(0.0, span.to_s - span.works_from_s) / span.step_s;
    if (span.guest) continue;
    changes[span.pool][span.from_s] += span.devices;
    changes[span.pool][span.to_s] -= span.devices;
  }
  for (std::size_t job = 0; job < result.jobs.size(); ++job) {
    const FleetJobResult& ended = result.jobs[job];
    EXPECT_NEAR(steps[job], static_cast<double>(ended.job.steps), 1e-6 * static_cast<double>(ended.job.steps));
    EXPECT_GE(ended.start_s, ended.job.arrival_s);
    EXPECT_GT(ended.end_s, ended.start_s);
  }
  for (std::size_t pool = 0; pool < changes.size(); ++pool) {
    std::int64_t in_use = 0;
    double used_s = 0;
    double since_s = 0;
    for (const auto& [time_s, change] : changes[pool]) {
      used_s += static_cast<double>(in_use) * (time_s - since_s);
      since_s = time_s;
      in_use += change;
      ASSERT_LE(in_use, fleet.cluster.pools[pool].devices());
      ASSERT_GE(in_use, 0);
    }
    EXPECT_EQ(in_use, 0);
    EXPECT_NEAR(used_s, result.device_s[pool], 1e-6 * (1 + used_s));
  }
}

Fleet drawn_fleet(Random& random) {
  Fleet fleet{one_pool(1 + static_cast<std::int64_t>(random.below(6)), 8), {}, {}};
  fleet.cluster.pools.push_back({.kind = "a100", .hosts = 2, .devices_of_host = 4, .memory_bytes = 100});
  for (int kind = 0; kind < 3; ++kind) {
    std::vector<std::pair<std::int64_t, double>> points;
    std::int64_t devices = 1;
    double ms = 500 + 4000 * random.uniform();
    for (; devices <= 8; devices *= 2, ms *= 0.5 + 0.3 * random.uniform()) points.emplace_back(devices, ms);
    FleetJobKind job = job_of("job" + std::to_string(kind), points, points[random.below(points.size())].first,
                              0.3 + 0.7 * random.uniform(), static_cast<double>(random.below(60)));
    for (const auto& [on, step_ms] : points) {
      if (random.below(2) == 0)
        job.cells.cells.push_back({.kind = "a100", .devices = on, .step_ms = 2 * step_ms, .busy = 0.9, .bytes = 30});
    }
    job.least_steps = 5;
    job.most_steps = 200;
    fleet.jobs.kinds.push_back(job);
  }
  fleet.jobs.jobs = 40;
  fleet.jobs.mean_between_s = 1 + 100 * random.uniform();
  fleet.drawn = drawn_jobs(fleet.jobs, random.next());
  return fleet;
}

TEST(FleetSimulation, conserves_devices_and_work) {  // FX-1, FX-2, FX-3, FQ-1
  Random random(77);
  for (int trial = 0; trial < 100; ++trial) {
    const Fleet fleet = drawn_fleet(random);
    for (const FleetPolicy policy : {FleetPolicy::fixed, FleetPolicy::cells}) {
      for (const bool pack : {false, true}) {
        SCOPED_TRACE("trial " + std::to_string(trial) + (policy == FleetPolicy::fixed ? " fixed" : " cells") +
                     (pack ? " packed" : ""));
        const FleetOptions options{.policy = policy, .pack = pack, .move_s = 20 * random.uniform()};
        const FleetResult result = fleet.run(options);
        expect_conserved(fleet, result);
        if (testing::Test::HasFailure()) return;
        const FleetResult again = fleet.run(options);
        for (std::size_t job = 0; job < result.jobs.size(); ++job)
          ASSERT_EQ(again.jobs[job].end_s, result.jobs[job].end_s);
        for (const FleetJobResult& job : result.jobs) {
          ASSERT_TRUE(policy == FleetPolicy::cells || job.moves == 0);
          ASSERT_TRUE(pack || !job.packed);
        }
      }
    }
  }
}

/// Returns jobs of one kind on 8 devices: 2 s a step on four, 1.25 s on eight.
Fleet elastic(std::vector<FleetJob> drawn) {
  return {one_pool(1, 8), jobs_of({job_of("elastic", {{4, 2 * s}, {8, 1.25 * s}}, 4)}), std::move(drawn)};
}

TEST(FleetSimulation, cells_use_devices_that_fixed_layouts_leave) {
  const Fleet one = elastic({{.steps = 100}});
  EXPECT_DOUBLE_EQ(one.run({.policy = FleetPolicy::fixed}).jobs[0].end_s, 200);
  EXPECT_DOUBLE_EQ(one.run({.policy = FleetPolicy::cells}).jobs[0].end_s, 125);
}

TEST(FleetSimulation, a_job_grows_where_the_gain_exceeds_the_move) {
  const Fleet two = elastic({{.steps = 100}, {.steps = 200}});
  const FleetResult moved = two.run({.policy = FleetPolicy::cells, .move_s = 10});
  EXPECT_DOUBLE_EQ(moved.jobs[0].end_s, 200);
  EXPECT_DOUBLE_EQ(moved.jobs[1].end_s, 200 + 10 + 100 * 1.25);
  EXPECT_EQ(moved.jobs[1].moves, 1);
  const FleetResult kept = two.run({.policy = FleetPolicy::cells, .move_s = 76});  // 76 + 125 > 200
  EXPECT_DOUBLE_EQ(kept.jobs[1].end_s, 400);
  EXPECT_EQ(kept.jobs[1].moves, 0);
  EXPECT_DOUBLE_EQ(two.run({.policy = FleetPolicy::cells, .move_s = 74}).jobs[1].end_s, 399);
}

TEST(FleetSimulation, a_job_makes_room_for_another) {
  const Fleet two = elastic({{.steps = 100}, {.arrival_s = 25, .steps = 100}});
  const FleetResult result = two.run({.policy = FleetPolicy::cells, .move_s = 5});
  EXPECT_DOUBLE_EQ(result.jobs[1].start_s, 25);
  EXPECT_EQ(result.jobs[0].moves, 1);
  EXPECT_DOUBLE_EQ(result.jobs[0].end_s, 25 + 5 + 80 * 2) << "20 steps on eight devices, 80 on four";
  const FleetResult waited = two.run({.policy = FleetPolicy::cells, .move_s = 60});  // 0.4 * 100 s < 60 s
  EXPECT_DOUBLE_EQ(waited.jobs[0].end_s, 125);
  EXPECT_DOUBLE_EQ(waited.jobs[1].start_s, 125);
}

TEST(FleetSimulation, a_later_job_goes_first_where_the_head_loses_nothing) {
  const FleetJobs jobs = jobs_of({job_of("half", {{4, 1 * s}}, 4), job_of("whole", {{8, 1 * s}}, 8)});
  const auto starts = [&](std::int64_t steps_of_last) {
    const Fleet fleet{one_pool(1, 8),
                      jobs,
                      {{.kind = 0, .steps = 100}, {.kind = 1, .steps = 50}, {.kind = 0, .steps = steps_of_last}}};
    const FleetResult result = fleet.run({.policy = FleetPolicy::fixed});
    expect_conserved(fleet, result);
    return std::pair(result.jobs[1].start_s, result.jobs[2].start_s);
  };
  EXPECT_EQ(starts(100), std::pair(100.0, 0.0));
  EXPECT_EQ(starts(101), std::pair(100.0, 150.0)) << "the head would have to wait for it";
}

TEST(FleetSimulation, jobs_share_devices_where_that_ends_them_earlier) {
  const auto run = [](double busy, double bytes) {
    const Fleet fleet{
        one_pool(1, 8), jobs_of({job_of("job", {{8, 1 * s}}, 8, busy, bytes)}), {{.steps = 100}, {.steps = 60}}};
    const FleetResult result = fleet.run({.policy = FleetPolicy::fixed, .pack = true});
    expect_conserved(fleet, result);
    return result;
  };
  const FleetResult half = run(0.5, 10);
  EXPECT_DOUBLE_EQ(half.jobs[0].end_s, 100);
  EXPECT_DOUBLE_EQ(half.jobs[1].end_s, 60);
  EXPECT_TRUE(half.jobs[0].packed && half.jobs[1].packed);
  EXPECT_DOUBLE_EQ(half.device_s[0], 800) << "devices that are shared count once";
  const FleetResult most = run(0.6, 10);
  EXPECT_DOUBLE_EQ(most.jobs[1].end_s, 72);
  EXPECT_DOUBLE_EQ(most.jobs[0].end_s, 112);
  const FleetResult busy = run(0.95, 10);  // run together, both would end later than one after the other
  EXPECT_DOUBLE_EQ(busy.jobs[1].start_s, 100);
  EXPECT_FALSE(busy.jobs[0].packed);
  const FleetResult large = run(0.5, 50);  // 100 bytes exceed 92% of a device
  EXPECT_DOUBLE_EQ(large.jobs[1].start_s, 100);
}

TEST(FleetSimulation, a_small_job_slows_no_large_job_down_for_less_work_in_all) {
  const auto packed = [](double busy) {
    const FleetJobs jobs = jobs_of({job_of("large", {{8, 1 * s}}, 8, 0.6), job_of("small", {{1, 1 * s}}, 1, busy)});
    const Fleet fleet{one_pool(1, 8), jobs, {{.kind = 0, .steps = 100}, {.kind = 1, .steps = 60}}};
    return fleet.run({.policy = FleetPolicy::fixed, .pack = true}).jobs[1].packed;
  };
  EXPECT_TRUE(packed(0.5)) << "nine devices' work at 1.1 times the time";
  EXPECT_FALSE(packed(0.55)) << "nine devices' work at 1.15 times the time is less than eight devices' work";
}

TEST(FleetSimulation, a_guest_keeps_its_devices_when_the_owner_ends) {
  const FleetJobs jobs = jobs_of({job_of("owner", {{8, 1 * s}}, 8, 0.5), job_of("guest", {{4, 1 * s}}, 4, 0.5)});
  const Fleet fleet{one_pool(1, 8),
                    jobs,
                    {{.kind = 0, .steps = 50}, {.kind = 1, .steps = 80}, {.kind = 1, .arrival_s = 60, .steps = 10}}};
  const FleetResult result = fleet.run({.policy = FleetPolicy::fixed, .pack = true});
  expect_conserved(fleet, result);
  EXPECT_DOUBLE_EQ(result.jobs[1].end_s, 80);
  EXPECT_DOUBLE_EQ(result.jobs[2].start_s, 60) << "the other four devices are free";
  EXPECT_DOUBLE_EQ(result.device_s[0], 8 * 50 + 4 * 30 + 4 * 10);
}

TEST(FleetFigures, are_of_all_jobs_and_of_each_kind) {  // FV-1
  Fleet fleet{one_pool(1, 8),
              jobs_of({job_of("whole", {{8, 1 * s}}, 8), job_of("half", {{4, 1 * s}}, 4)}),
              {{.kind = 0, .arrival_s = 10, .steps = 3600}, {.kind = 1, .arrival_s = 10, .steps = 7200}}};
  fleet.cluster.pools[0].price_per_hour = 40;
  const FleetFigures figures = figures_of(fleet.cluster, fleet.jobs, fleet.run({.policy = FleetPolicy::fixed}));
  EXPECT_EQ(figures.all.jobs, 2);
  EXPECT_DOUBLE_EQ(figures.all.mean_wait_s, 1800);
  EXPECT_DOUBLE_EQ(figures.all.mean_completion_s, (3600 + 10800) / 2);
  EXPECT_DOUBLE_EQ(figures.all.p99_completion_s, 10800);
  ASSERT_EQ(figures.kinds.size(), 2U);
  EXPECT_EQ(figures.kinds[1].name, "half");
  EXPECT_DOUBLE_EQ(figures.kinds[1].mean_wait_s, 3600);
  EXPECT_DOUBLE_EQ(figures.pools[0].device_hours, 8 + 4 * 2);
  EXPECT_DOUBLE_EQ(figures.pools[0].in_use, 16.0 / 24);
  EXPECT_DOUBLE_EQ(*figures.pools[0].price, 2 * 40) << "sixteen device hours of hosts with eight devices";
  fleet.cluster.pools[0].price_per_hour = 0;
  EXPECT_FALSE(figures_of(fleet.cluster, fleet.jobs, fleet.run({.policy = FleetPolicy::fixed})).pools[0].price);
}

}  // namespace
}  // namespace maestro
