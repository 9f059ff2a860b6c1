// SPDX-License-Identifier: Apache-2.0
// Bookkeeping of device memory and multiprocessors only; addresses are made up and never read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/device/block_cache.hpp"
#include "runtime/device/multiprocessor_split.hpp"
#include "runtime/device/stream_order.hpp"

namespace maestro {
namespace {

using ::testing::ElementsAre;

std::byte* address(std::size_t number) {
  return reinterpret_cast<std::byte*>(number << 24);
}

TEST(StreamOrder, a_block_that_goes_back_to_its_stream_waits_for_nothing) {  // SO-1
  StreamOrder<std::string> order;
  order.released(address(1), 7, "after the last kernel");
  EXPECT_EQ(order.reuse(address(1), 7), std::nullopt);
  EXPECT_EQ(order.size(), 0u);
}

TEST(StreamOrder, another_stream_waits_for_the_latest_release_once) {  // SO-2, SO-3
  StreamOrder<std::string> order;
  EXPECT_EQ(order.reuse(address(1), 1), std::nullopt);  // never used before
  order.released(address(1), 7, "first");
  order.released(address(1), 7, "second");
  order.released(address(2), 7, "other");
  EXPECT_EQ(order.reuse(address(1), 8), "second");
  EXPECT_EQ(order.reuse(address(1), 8), std::nullopt);
  order.forget(address(2));
  EXPECT_EQ(order.reuse(address(2), 8), std::nullopt);
}

TEST(BlockCache, sizes_are_rounded_by_less_than_a_step) {  // BC-3
  EXPECT_EQ(BlockCache::rounded(0), BlockCache::small_step);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{512}, std::size_t{513}, (std::size_t{2} << 20) - 1,
                                  std::size_t{2} << 20, (std::size_t{2} << 20) + 1, std::size_t{1} << 33}) {
    const std::size_t step = bytes < BlockCache::large_step ? BlockCache::small_step : BlockCache::large_step;
    EXPECT_GE(BlockCache::rounded(bytes), bytes);
    EXPECT_LT(BlockCache::rounded(bytes) - bytes, step);
    EXPECT_EQ(BlockCache::rounded(bytes) % step, 0u);
    EXPECT_EQ(BlockCache::rounded(BlockCache::rounded(bytes)), BlockCache::rounded(bytes));
  }
}

TEST(BlockCache, blocks_are_reused_for_their_own_size_and_the_books_balance) {  // BC-1, BC-2
  BlockCache cache;
  std::mt19937 random(1);
  std::map<std::byte*, std::size_t> taken;
  std::size_t reserved = 0;
  for (std::size_t step = 1; step < 2000; ++step) {
    if (taken.empty() || random() % 2 == 0) {
      const std::size_t bytes = std::size_t{1} << (random() % 24);
      std::byte* block = cache.take(bytes);
      if (block == nullptr) {
        block = address(step);
        cache.add(bytes);
        reserved += BlockCache::rounded(bytes);
      }
      ASSERT_TRUE(taken.emplace(block, bytes).second) << "handed out twice";
    } else {
      const auto any = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      cache.release(any->first, any->second);
      taken.erase(any);
    }
    std::size_t bytes = 0;
    for (const auto& [block, size] : taken) bytes += BlockCache::rounded(size);
    ASSERT_EQ(cache.used_bytes(), bytes);
    ASSERT_EQ(cache.reserved_bytes(), reserved);
  }
  EXPECT_GE(cache.peak_bytes(), cache.used_bytes());
  EXPECT_LE(cache.peak_bytes(), reserved);
  const std::size_t still = cache.used_bytes();
  EXPECT_FALSE(cache.drain().empty());
  EXPECT_EQ(cache.reserved_bytes(), still);
  EXPECT_EQ(cache.take(1), nullptr);
}

TEST(BlockCache, the_block_that_was_released_last_is_handed_out_first) {  // BC-2
  BlockCache cache;
  for (const std::size_t block : {1u, 2u, 3u}) {
    cache.add(100);
    cache.release(address(block), 100);
  }
  for (const std::size_t block : {3u, 2u, 1u}) EXPECT_EQ(cache.take(100), address(block));
  const std::size_t most = cache.used_bytes();
  for (const std::size_t block : {1u, 2u, 3u}) cache.release(address(block), 100);
  EXPECT_EQ(cache.take(100), address(3));
  EXPECT_EQ(cache.peak_bytes(), most);
}

TEST(MultiprocessorSplit, shares_become_whole_groups_of_the_same_number_in_any_order) {  // MP-2
  const auto split = [](const std::vector<double>& shares, int groups = 15) {
    MultiprocessorLedger ledger(groups);
    std::vector<std::size_t> counts;
    for (const double share : shares) counts.push_back(ledger.take(share).size());
    return counts;
  };
  EXPECT_THAT(split({1.0}), ElementsAre(15U));
  EXPECT_THAT(split({0.5, 0.5}), ElementsAre(7U, 7U));
  EXPECT_THAT(split({0.75, 0.25}), ElementsAre(11U, 4U));
  EXPECT_THAT(split({0.25, 0.75}), ElementsAre(4U, 11U));
  EXPECT_THAT(split({0.01, 0.99}), ElementsAre(1U, 14U));
  EXPECT_THAT(split({0.99, 0.01}), ElementsAre(14U, 1U));
  EXPECT_THAT(split({0.11, 0.11, 0.11, 0.67}), ElementsAre(2U, 2U, 2U, 9U));  // the last gets the rest
  EXPECT_THAT(split({0.5}, 1), ElementsAre(1U));                              // a single group gets everything
}

TEST(MultiprocessorSplit, no_group_is_given_twice_and_what_comes_back_is_given_again) {  // MP-1
  MultiprocessorLedger ledger(16);
  const std::vector<int> first = ledger.take(0.5);
  const std::vector<int> second = ledger.take(0.5);
  std::set<int> all(first.begin(), first.end());
  all.insert(second.begin(), second.end());
  EXPECT_EQ(all.size(), first.size() + second.size());
  EXPECT_THROW((void)ledger.take(0.1), JobError);
  ledger.give_back(first);
  EXPECT_EQ(ledger.take(0.5), first);
}

TEST(MultiprocessorSplit, a_share_that_is_none_is_refused) {
  MultiprocessorLedger ledger(16);
  for (const double share : {0.0, -0.5, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW((void)ledger.take(share), JobError) << share;
  }
}

}  // namespace
}  // namespace maestro
