// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/allocator.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace maestro {
namespace {

/// Sections whose work is divided among n devices, plus a constant time at the end of a step. Each pool has a speed.
struct Case {
  std::vector<DevicePool> pools;
  std::vector<double> speeds;
  std::vector<double> work_ms;

  explicit Case(std::mt19937& random) {
    const auto drawn = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    for (int pool = drawn(1, 3); pool > 0; --pool) {
      pools.push_back({drawn(1, 12), drawn(1, 4), static_cast<double>(drawn(1, 9))});
      speeds.push_back(drawn(1, 4));
    }
    for (int section = drawn(1, 3); section > 0; --section) work_ms.push_back(drawn(10, 200));
  }
  [[nodiscard]] double bound_ms(std::size_t section, std::size_t pool, std::int64_t devices) const {
    return work_ms[section] / (speeds[pool] * static_cast<double>(devices)) + 0.1;
  }
  [[nodiscard]] Allocator allocator(double most_per_hour = 1e9) const {
    return {pools, work_ms.size(),
            [this](std::size_t section, std::size_t pool, double most_ms) -> std::optional<Allotment> {
              for (std::int64_t devices = 1; devices <= pools[pool].devices; ++devices) {
                const double ms = bound_ms(section, pool, devices);
                if (ms <= most_ms) return Allotment{pool, devices, ms};
              }
              return std::nullopt;
            },
            most_per_hour};
  }
  /// Calls `seen(bound_ms, price_per_hour)` for every allocation of devices to sections.
  template <class Seen>
  void every(const Seen& seen) const {
    std::vector<std::int64_t> used(pools.size());
    extend(0, 0, used, seen);
  }

 private:
  template <class Seen>
  void extend(std::size_t section, double bound, std::vector<std::int64_t>& used, const Seen& seen) const {
    if (section == work_ms.size()) {
      double price = 0;
      for (std::size_t pool = 0; pool < pools.size(); ++pool) {
        price += std::ceil(static_cast<double>(used[pool]) / static_cast<double>(pools[pool].devices_of_host)) *
                 pools[pool].price_per_hour;
      }
      seen(bound, price);
      return;
    }
    for (std::size_t pool = 0; pool < pools.size(); ++pool) {
      for (std::int64_t devices = 1; used[pool] + devices <= pools[pool].devices; ++devices) {
        used[pool] += devices;
        extend(section + 1, std::max(bound, bound_ms(section, pool, devices)), used, seen);
        used[pool] -= devices;
      }
    }
  }
};

TEST(Allocator, is_as_fast_and_as_cheap_as_the_best_of_all_ways) {  // AL-1, AL-2
  std::mt19937 random(11);
  int compared = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const Case drawn(random);
    double least = 1e12;
    drawn.every([&](double bound, double) { least = std::min(least, bound); });
    const auto fastest = drawn.allocator().fastest();
    ASSERT_EQ(fastest.has_value(), least < 1e12) << trial;
    if (!fastest) continue;
    EXPECT_NEAR(fastest->bound_ms, least, 1e-9 * least) << trial;
    const double most_ms = least * 1.3;
    double cheapest = 1e12;
    drawn.every([&](double bound, double price) {
      if (bound <= most_ms) cheapest = std::min(cheapest, price);
    });
    const auto within = drawn.allocator().within(most_ms);
    ASSERT_TRUE(within.has_value()) << trial;
    EXPECT_DOUBLE_EQ(within->price_per_hour, cheapest) << trial;
    EXPECT_LE(within->bound_ms, most_ms) << trial;
    ++compared;
  }
  EXPECT_GT(compared, 200);
}

TEST(Allocator, no_way_is_both_faster_and_cheaper_than_a_point_of_the_front) {  // AL-3
  std::mt19937 random(12);
  for (int trial = 0; trial < 200; ++trial) {
    const Case drawn(random);
    const std::vector<Allocation> front = drawn.allocator().front();
    for (std::size_t at = 0; at < front.size(); ++at) {
      drawn.every([&](double bound, double price) {
        if (bound > front[at].bound_ms) return;
        EXPECT_GE(price, front[at].price_per_hour - 1e-9) << trial << " point " << at;
      });
      if (at == 0) continue;
      EXPECT_GT(front[at].bound_ms, front[at - 1].bound_ms);
      EXPECT_LT(front[at].price_of_step(), front[at - 1].price_of_step());
    }
    if (front.empty()) continue;
    double cheapest = 1e12;
    drawn.every([&](double bound, double price) { cheapest = std::min(cheapest, bound * price / 3.6e6); });
    EXPECT_LE(front.back().price_of_step(), cheapest * 1.0501) << trial << ": its steps of time are a twentieth";
  }
}

TEST(Allocator, keeps_to_a_price) {  // AL-1
  std::mt19937 random(13);
  int bounded = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Case drawn(random);
    const auto free = drawn.allocator().fastest();
    if (!free) continue;
    const double most = free->price_per_hour * 0.6;
    double least = 1e12;
    drawn.every([&](double bound, double price) {
      if (price <= most) least = std::min(least, bound);
    });
    const auto within = drawn.allocator(most).fastest();
    ASSERT_EQ(within.has_value(), least < 1e12) << trial;
    if (!within) continue;
    EXPECT_LE(within->price_per_hour, most);
    EXPECT_NEAR(within->bound_ms, least, 1e-9 * least) << trial;
    ++bounded;
  }
  EXPECT_GT(bounded, 50);
}

}  // namespace
}  // namespace maestro
