// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/host_pool.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "runtime/core/random.hpp"

namespace maestro {
namespace {

std::int64_t devices_of(const HostPlaces& places) {
  std::int64_t sum = 0;
  for (const auto& [host, devices] : places) sum += devices;
  return sum;
}

HostPlaces taken(HostPool& pool, std::int64_t devices) {
  HostPlaces places;
  pool.take(devices, places);
  return places;
}

TEST(HostPool, places_have_whole_hosts_first) {  // HU-2
  HostPool pool(4, 8);
  EXPECT_EQ(taken(pool, 3), (HostPlaces{{0, 3}}));
  EXPECT_EQ(taken(pool, 18), (HostPlaces{{1, 8}, {2, 8}, {0, 2}}));
  EXPECT_EQ(taken(pool, 4), (HostPlaces{{3, 4}})) << "three free devices are left on the first host";
  EXPECT_EQ(taken(pool, 3), (HostPlaces{{0, 3}}));
  const HostPlaces rest = taken(pool, 4);
  EXPECT_EQ(rest, (HostPlaces{{3, 4}}));
  EXPECT_FALSE(pool.spread(rest));
  EXPECT_THROW((void)taken(pool, 1), std::logic_error);
}

TEST(HostPool, places_that_no_host_has_room_for_are_spread) {
  HostPool pool(3, 4);
  const HostPlaces first = taken(pool, 2);
  const HostPlaces second = taken(pool, 4);
  const HostPlaces third = taken(pool, 3);
  EXPECT_EQ(taken(pool, 3), (HostPlaces{{0, 2}, {2, 1}}));
  EXPECT_TRUE(pool.spread({{0, 2}, {2, 1}}));
  EXPECT_FALSE(pool.spread({{0, 4}, {2, 1}}));
}

TEST(HostPool, devices_are_neither_lost_nor_made) {  // HU-1
  HostPool pool(6, 8);
  Random random(3);
  std::vector<HostPlaces> held;
  for (int step = 0; step < 5000; ++step) {
    if (random.below(2) == 0 && pool.free() > 0) {
      const auto devices = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(pool.free())));
      held.push_back(taken(pool, devices));
      ASSERT_EQ(devices_of(held.back()), devices);
    } else if (!held.empty()) {
      HostPlaces& places = held[random.below(held.size())];
      const std::int64_t all = devices_of(places);
      const auto some = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(all)));
      const HostPlaces part = split_off(places, some);
      ASSERT_EQ(devices_of(part), some);
      ASSERT_EQ(devices_of(places), all - some);
      pool.give_back(part);
      std::erase_if(held, [](const HostPlaces& each) { return each.empty(); });
    }
    std::vector<std::int64_t> by_host(6);
    std::int64_t all = pool.free();
    for (const HostPlaces& places : held) {
      all += devices_of(places);
      for (const auto& [host, devices] : places) by_host[host] += devices;
    }
    ASSERT_EQ(all, 48);
    for (const std::int64_t devices : by_host) ASSERT_LE(devices, 8);
  }
  EXPECT_THROW(pool.give_back({{0, 9}}), std::logic_error);
}

}  // namespace
}  // namespace maestro
