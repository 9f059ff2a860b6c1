// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/renamed_places.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "runtime/core/random.hpp"

namespace maestro {
namespace {

struct Section {
  std::string name;
  std::int64_t replicas = 1;
  std::int64_t ranks = 1;  // on one host
  double bytes = 1;        // per rank
};

/// Returns sections in order on devices in order, with the ranks of each replica on one host.
std::vector<PlacedPart> in_turn(const std::vector<Section>& sections, std::int64_t devices_of_host) {
  std::vector<PlacedPart> plan;
  std::int64_t at = 0;
  for (const Section& section : sections) {
    for (std::int64_t replica = 0; replica < section.replicas; ++replica) {
      const std::int64_t left = devices_of_host - at % devices_of_host;
      if (left < section.ranks) at += left;
      for (std::int64_t rank = 0; rank < section.ranks; ++rank, ++at) {
        const std::string name = section.name + ".replica" + std::to_string(replica) + ".rank" + std::to_string(rank);
        plan.push_back({name, at / devices_of_host, at % devices_of_host, section.bytes});
      }
    }
  }
  return plan;
}

std::int64_t hosts_of(const std::vector<PlacedPart>& plan) {
  return 1 + std::ranges::max_element(plan, {}, &PlacedPart::host)->host;
}

/// Returns the groups of parts that share a host, and the groups that share a device.
std::pair<std::set<std::set<std::string>>, std::set<std::set<std::string>>> groups(
    const std::vector<PlacedPart>& plan) {
  std::map<std::int64_t, std::set<std::string>> hosts;
  std::map<std::pair<std::int64_t, std::int64_t>, std::set<std::string>> devices;
  for (const PlacedPart& part : plan) {
    hosts[part.host].insert(part.name);
    devices[{part.host, part.device}].insert(part.name);
  }
  std::pair<std::set<std::set<std::string>>, std::set<std::set<std::string>>> found;
  for (const auto& [host, parts] : hosts) found.first.insert(parts);
  for (const auto& [device, parts] : devices) found.second.insert(parts);
  return found;
}

TEST(RenamedPlaces, of_an_unchanged_plan_move_nothing) {
  const std::vector<PlacedPart> plan = in_turn({{"teacher", 3, 2, 8}, {"student", 5, 1, 2}}, 4);
  EXPECT_EQ(moved_bytes(plan, renamed(plan, renamed_places(plan, plan, 5, 4))), 0);
  std::vector<PlacedPart> turned = plan;  // reverses hosts and devices
  for (PlacedPart& part : turned) part = {part.name, 4 - part.host, 3 - part.device, part.bytes};
  EXPECT_GT(moved_bytes(plan, turned), 0);
  EXPECT_EQ(moved_bytes(plan, renamed(turned, renamed_places(plan, turned, 5, 4))), 0);
}

/// Returns a plan, and another after sections were added, removed, resized and reordered.
std::pair<std::vector<Section>, std::vector<Section>> drawn_plans(Random& random) {
  std::vector<Section> old;
  for (std::size_t at = 0; at < 2 + random.below(3); ++at) {
    const std::int64_t ranks = std::int64_t{1} << random.below(3);
    old.push_back({"section" + std::to_string(at), static_cast<std::int64_t>(2 + random.below(24)), ranks,
                   1 + static_cast<double>(random.below(16))});
  }
  std::vector<Section> next = old;
  for (Section& section : next) {
    const auto change = static_cast<std::int64_t>(random.below(9)) - 4;
    section.replicas = std::max<std::int64_t>(1, section.replicas + change);
  }
  std::swap(next[random.below(next.size())], next[random.below(next.size())]);
  return {old, next};
}

TEST(RenamedPlaces, move_at_most_half_of_the_bytes_that_places_in_turn_move) {  // RZ-1
  Random random(31);
  double moved_in_turn = 0;
  double moved = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const auto [old_sections, next_sections] = drawn_plans(random);
    const std::vector<PlacedPart> old = in_turn(old_sections, 8);
    const std::vector<PlacedPart> next = in_turn(next_sections, 8);
    const std::int64_t hosts = std::max(hosts_of(old), hosts_of(next));
    const std::vector<PlacedPart> better = renamed(next, renamed_places(old, next, hosts, 8));
    EXPECT_EQ(groups(better), groups(next));
    EXPECT_LE(moved_bytes(old, better), moved_bytes(old, next)) << "trial " << trial;
    moved_in_turn += moved_bytes(old, next);
    moved += moved_bytes(old, better);
  }
  RecordProperty("share_that_moves_in_percent", static_cast<int>(100 * moved / moved_in_turn));
  EXPECT_LE(moved, 0.5 * moved_in_turn) << moved / moved_in_turn;
}

TEST(RenamedPlaces, keep_as_many_bytes_as_any_renaming) {  // RZ-2
  Random random(7);
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<PlacedPart> old;
    std::vector<PlacedPart> next;
    for (int part = 0; part < 7; ++part) {
      const auto name = std::to_string(random.below(4));
      const auto bytes = static_cast<double>(1 + random.below(9));
      const auto place = [&] { return static_cast<std::int64_t>(random.below(3)); };
      old.push_back({name, place(), place(), bytes});
      next.push_back({std::to_string(random.below(4)), place(), place(), bytes});
    }
    double least = moved_bytes(old, next);
    RenamedPlaces names{{0, 1, 2}, {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}};
    do {
      for (int choice = 0; choice < 216; ++choice) {
        int rest = choice;
        for (auto& devices : names.devices) {
          devices = {0, 1, 2};
          for (int step = rest % 6; step > 0; --step) std::ranges::next_permutation(devices);
          rest /= 6;
        }
        least = std::min(least, moved_bytes(old, renamed(next, names)));
      }
    } while (std::ranges::next_permutation(names.hosts).found);
    EXPECT_DOUBLE_EQ(moved_bytes(old, renamed(next, renamed_places(old, next, 3, 3))), least) << "trial " << trial;
  }
}

TEST(RenamedPlaces, of_4096_devices_are_found_in_a_second) {
  const std::vector<PlacedPart> old =
      in_turn({{"teacher", 400, 4, 9}, {"student", 2000, 1, 5}, {"plain", 64, 1, 5}}, 8);
  const std::vector<PlacedPart> next =
      in_turn({{"student", 1700, 1, 5}, {"teacher", 500, 4, 9}, {"plain", 300, 1, 5}}, 8);
  const std::clock_t begin = std::clock();  // CPU time, which does not depend on other processes
  const RenamedPlaces names = renamed_places(old, next, 512, 8);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  RecordProperty("ms", static_cast<int>(1e3 * seconds));
  EXPECT_LT(seconds, 20);  // for a build without optimisation or with sanitizers
  EXPECT_LT(moved_bytes(old, renamed(next, names)), moved_bytes(old, next));
}

TEST(RenamedPlaces, refuse_a_part_outside_the_cluster) {
  const std::vector<PlacedPart> plan{{"teacher", 2, 0, 1}};
  EXPECT_THROW((void)renamed_places(plan, {}, 2, 4), std::out_of_range);
}

}  // namespace
}  // namespace maestro
