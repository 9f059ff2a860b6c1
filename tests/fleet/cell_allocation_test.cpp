// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/cell_allocation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/core/random.hpp"

namespace maestro {
namespace {

/// Returns a curve on pool 0 with an option for each number of devices; its fixed layout takes a second per step.
FleetCurve curve_of(const std::vector<double>& rates) {
  FleetCurve curve{.options = {}, .fixed = {.devices = 1, .step_s = 1}};
  for (std::size_t at = 0; at < rates.size(); ++at) {
    curve.options.push_back({.devices = static_cast<std::int64_t>(at) + 1, .step_s = 1 / rates[at]});
  }
  return curve;
}

double most_rates(const std::vector<FleetCurve>& curves, std::int64_t devices) {
  std::vector<double> most(static_cast<std::size_t>(devices) + 1);
  for (const FleetCurve& curve : curves) {
    for (std::size_t have = most.size(); have-- > 0;) {
      for (const FleetOption& option : curve.options) {
        const auto taken = static_cast<std::size_t>(option.devices);
        if (taken <= have) most[have] = std::max(most[have], most[have - taken] + curve.rate(option));
      }
    }
  }
  return most.back();
}

TEST(CellAllocation, is_best_where_each_device_adds_less_than_the_one_before) {
  Random random(8);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<FleetCurve> curves;
    for (std::size_t job = 0; job < 1 + random.below(5); ++job) {
      std::vector<double> rates;
      double more = 1;
      for (std::size_t at = 0; at < 2 + random.below(8); ++at) {
        more *= 0.3 + 0.65 * random.uniform();
        rates.push_back((rates.empty() ? 0 : rates.back()) + more);
      }
      curves.push_back(curve_of(rates));
    }
    std::vector<AllocatedJob> jobs;
    for (const FleetCurve& curve : curves) jobs.push_back({.curve = &curve});
    const auto devices = static_cast<std::int64_t>(random.below(20));
    EXPECT_NEAR(allocate_cells(jobs, {devices}).rates, most_rates(curves, devices), 1e-9) << "trial " << trial;
  }
}

TEST(CellAllocation, the_first_job_goes_before_its_equals) {  // CZ-2
  const FleetCurve curve = curve_of({1, 1.5});
  const std::vector<AllocatedJob> jobs(3, {.curve = &curve});
  const CellAllocation chosen = allocate_cells(jobs, {4});
  EXPECT_EQ(chosen.options, (std::vector<std::optional<std::size_t>>{1, 0, 0}));
  EXPECT_DOUBLE_EQ(chosen.rates, 3.5);
  EXPECT_EQ(allocate_cells(jobs, {2}).options, (std::vector<std::optional<std::size_t>>{0, 0, std::nullopt}));
}

TEST(CellAllocation, a_pinned_job_keeps_its_option) {
  const FleetCurve curve = curve_of({1, 1.9});
  const std::vector<AllocatedJob> jobs{{.curve = &curve, .least = 0, .pinned = true}, {.curve = &curve}};
  EXPECT_EQ(allocate_cells(jobs, {4}).options, (std::vector<std::optional<std::size_t>>{0, 1}));
}

TEST(CellAllocation, stays_within_the_pools_and_stops_no_running_job) {  // CZ-1, CZ-3
  Random random(21);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<FleetCurve> curves(1 + random.below(6));
    std::vector<std::int64_t> free{static_cast<std::int64_t>(random.below(30)),
                                   static_cast<std::int64_t>(random.below(30))};
    for (FleetCurve& curve : curves) {
      curve.fixed.step_s = 1;
      for (std::size_t pool = 0; pool < 2; ++pool) {
        std::int64_t devices = 0;
        double step_s = 4;
        for (std::size_t at = 0; at < 1 + random.below(4); ++at) {
          devices += 1 + static_cast<std::int64_t>(random.below(6));
          step_s *= 0.4 + 0.5 * random.uniform();
          curve.options.push_back({.pool = pool, .devices = devices, .step_s = step_s});
        }
      }
    }
    std::vector<AllocatedJob> jobs;
    for (const FleetCurve& curve : curves) {
      AllocatedJob& job = jobs.emplace_back(AllocatedJob{.curve = &curve});
      if (random.below(2) == 0) continue;
      job.least = 0;
      job.pinned = random.below(3) == 0;
      free[0] += curve.options[0].devices;
    }
    const CellAllocation chosen = allocate_cells(jobs, free);
    for (std::size_t job = 0; job < jobs.size(); ++job) {
      ASSERT_TRUE(chosen.options[job] || !jobs[job].least);
      if (!chosen.options[job]) continue;
      const FleetOption& option = curves[job].options[*chosen.options[job]];
      free[option.pool] -= option.devices;
      ASSERT_TRUE(!jobs[job].least || curves[job].rate(option) >= curves[job].rate(curves[job].options[0]));
    }
    ASSERT_GE(free[0], 0);
    ASSERT_GE(free[1], 0);
  }
  const FleetCurve curve = curve_of({1});
  const std::vector<AllocatedJob> jobs(2, {.curve = &curve, .least = 0});
  EXPECT_THROW((void)allocate_cells(jobs, {1}), std::logic_error);
}

}  // namespace
}  // namespace maestro
