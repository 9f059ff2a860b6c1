// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/dry_space.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <thread>

namespace maestro {
namespace {

TEST(DrySpace, blocks_are_zeroed_and_apart_though_released_ones_are_used_again) {
  DrySpace space;
  std::mt19937 random(1);
  std::map<std::byte*, std::size_t> live;
  std::size_t held = 0;
  for (int round = 0; round < 3000; ++round) {
    if (!live.empty() && random() % 2 == 0) {
      const auto at = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      space.release(at->first, at->second);
      held -= at->second;
      live.erase(at);
    } else {
      const std::size_t bytes = 1 + random() % 20000;
      std::byte* const block = space.allocate(bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 256, 0U);
      const auto [at, fresh] = live.emplace(block, bytes);
      ASSERT_TRUE(fresh);
      if (at != live.begin()) {
        ASSERT_LE(std::prev(at)->first + std::prev(at)->second, block);
      }
      if (std::next(at) != live.end()) {
        ASSERT_LE(block + bytes, std::next(at)->first);
      }
      for (const std::size_t byte : {std::size_t{0}, bytes / 2, bytes - 1}) ASSERT_EQ(block[byte], std::byte{0});
      std::memset(block, 7, bytes);
      held += bytes;
    }
    ASSERT_EQ(space.held(), held);
  }
  for (const auto& [block, bytes] : live) space.release(block, bytes);
  EXPECT_EQ(space.held(), 0U);
}

TEST(DrySpace, blocks_may_be_larger_than_the_memory_of_the_machine) {
  DrySpace space;
  constexpr std::size_t bytes = std::size_t{300} << 30;
  std::byte* const block = space.allocate(bytes);
  std::byte* const other = space.allocate(bytes);
  EXPECT_TRUE(block + bytes <= other || other + bytes <= block);
  space.release(block, bytes);
  EXPECT_EQ(space.held(), bytes);
  EXPECT_EQ(space.allocate(bytes), block);
  space.release(block, bytes);
  space.release(other, bytes);
}

TEST(DrySpace, what_is_written_to_the_memory_of_a_device_is_dropped) {
  DrySpace space(false);
  constexpr std::size_t bytes = std::size_t{300} << 30;
  std::byte* const block = space.allocate(bytes);
  space.zero(block, bytes);  // would not end
  const std::byte written{7};
  space.write(block, &written, 1);
  std::byte read{7};
  space.read(&read, block, 1);
  EXPECT_EQ(read, std::byte{0});
  space.release(block, bytes);
}

TEST(DrySpace, threads_have_blocks_of_their_own) {
  DrySpace space;
  std::vector<std::jthread> threads;
  for (int number = 1; number <= 4; ++number) {
    threads.emplace_back([&space, number] {
      for (int round = 0; round < 500; ++round) {
        std::byte* const block = space.allocate(100);
        EXPECT_EQ(block[50], std::byte{0});
        block[50] = static_cast<std::byte>(number);
        std::this_thread::yield();
        EXPECT_EQ(block[50], static_cast<std::byte>(number));
        space.release(block, 100);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(space.held(), 0U);
}

}  // namespace
}  // namespace maestro
