// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/device_arena.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace maestro::fake_cuda {
namespace {

constexpr std::size_t unit = DeviceArena::alignment;
constexpr std::size_t size = std::size_t{1} << 20;

TEST(DeviceArena, blocks_do_not_overlap_and_all_room_comes_back) {
  DeviceArena arena(size);
  std::mt19937 random(1);
  std::map<std::byte*, std::size_t> taken;
  for (int round = 0; round < 3000; ++round) {
    if (taken.empty() || random() % 2 == 0) {
      const std::size_t bytes = unit * (1 + random() % 64);
      std::byte* const block = arena.take(bytes);
      if (block == nullptr) continue;
      ASSERT_EQ(arena.offset_of(block) % unit, 0u);
      const auto after = taken.lower_bound(block);
      ASSERT_TRUE(after == taken.end() || block + bytes <= after->first);
      ASSERT_TRUE(after == taken.begin() || std::prev(after)->first + std::prev(after)->second <= block);
      std::memset(block, 1, bytes);
      taken.emplace(block, bytes);
    } else {
      const auto any = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      arena.give_back(any->first, any->second);
      taken.erase(any);
    }
  }
  for (const auto& [block, bytes] : taken) arena.give_back(block, bytes);
  std::byte* const all = arena.take(size);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(arena.take(unit), nullptr);
  arena.give_back(all, size);
}

TEST(DeviceArena, a_block_is_given_out_again_when_all_others_were) {  // DA-1
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  DeviceArena arena(page);
  std::byte* const first = arena.take(unit);
  arena.give_back(first, unit);
  for (std::size_t other = 1; other < page / unit; ++other) EXPECT_NE(arena.take(unit), first);
  EXPECT_EQ(arena.take(unit), first);
}

TEST(DeviceArena, a_lap_ends_before_the_arena_unless_blocks_need_the_rest) {  // DA-1
  constexpr std::size_t lap = 8 * unit;
  DeviceArena arena(size, lap);
  std::byte* const first = arena.take(unit);
  arena.give_back(first, unit);
  for (std::size_t other = 1; other < lap / unit; ++other) arena.give_back(arena.take(unit), unit);
  EXPECT_EQ(arena.take(unit), first);
  EXPECT_EQ(arena.take(lap), first + unit);
  EXPECT_EQ(arena.take(unit), first + unit + lap);
}

TEST(DeviceArena, pages_of_blocks_that_were_given_back_take_no_memory) {  // DA-1
  const auto used = [](const DeviceArena& arena) {
    struct stat found {};
    EXPECT_EQ(fstat(arena.file(), &found), 0);
    return found.st_blocks;
  };
  DeviceArena arena(size);
  EXPECT_EQ(used(arena), 0);
  constexpr std::size_t bytes = size / 2 - unit;  // ends inside a page
  std::byte* const first = arena.take(bytes);
  std::byte* const second = arena.take(bytes);
  std::memset(first, 1, bytes);
  std::memset(second, 1, bytes);
  const auto both = used(arena);
  EXPECT_GT(both, 0);
  arena.give_back(first, bytes);
  EXPECT_LT(used(arena), both);
  EXPECT_EQ(second[0], std::byte{1});
  arena.give_back(second, bytes);
  EXPECT_EQ(used(arena), 0);
}

TEST(DeviceArena, cleared_bytes_are_zero_and_their_neighbours_stay) {
  DeviceArena arena(size);
  std::byte* const block = arena.take(size);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (const auto& [begin, end] : std::vector<std::pair<std::size_t, std::size_t>>{{0, size},
                                                                                   {page, 3 * page},
                                                                                   {page - 1, 3 * page + 1},
                                                                                   {page + 1, 2 * page - 1},
                                                                                   {page + 1, 2 * page + 1},
                                                                                   {5, 5}}) {
    std::memset(block, 1, size);
    arena.clear(block + begin, end - begin);
    for (std::size_t i = 0; i < size; ++i)
      ASSERT_EQ(block[i], std::byte{i < begin || i >= end}) << begin << " " << end << " " << i;
  }
}

}  // namespace
}  // namespace maestro::fake_cuda
