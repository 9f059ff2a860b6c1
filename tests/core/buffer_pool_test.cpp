// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "runtime/core/buffer.hpp"

namespace maestro {
namespace {

TEST(BufferPool, free_and_outstanding_blocks_make_up_the_capacity) {  // BP-1
  BufferPool pool(100, 3);
  EXPECT_EQ(pool.capacity(), 3U);
  EXPECT_EQ(pool.available(), 3U);
  Buffer a = pool.acquire();
  const Buffer b = pool.acquire();
  EXPECT_EQ(pool.available(), 1U);
  a.reset();
  EXPECT_EQ(pool.available(), 2U);
}

TEST(BufferPool, an_exhausted_pool_hands_out_an_empty_buffer_until_one_returns) {
  BufferPool pool(100, 1);
  Buffer held = pool.acquire();
  ASSERT_TRUE(held);
  EXPECT_FALSE(pool.acquire());
  held.reset();
  EXPECT_TRUE(pool.acquire());
}

TEST(BufferPool, a_block_returns_only_with_its_last_reference) {  // BP-2
  BufferPool pool(100, 1);
  Buffer first = pool.acquire();
  Buffer second = first;
  first.reset();
  EXPECT_EQ(pool.available(), 0U);
  EXPECT_FALSE(pool.acquire());
  second.reset();
  EXPECT_EQ(pool.available(), 1U);
}

TEST(BufferPool, blocks_lie_apart_inside_the_pools_memory_on_cache_lines) {
  BufferPool pool(100, 4);
  EXPECT_EQ(pool.block_bytes(), 128U);
  std::set<std::size_t> offsets;
  std::vector<Buffer> held;
  for (int i = 0; i < 4; ++i) {
    held.push_back(pool.acquire());
    const Buffer& buffer = held.back();
    EXPECT_EQ(buffer.size(), pool.block_bytes());
    EXPECT_EQ(pool.memory() + buffer.pool_offset(), buffer.data());
    EXPECT_EQ(buffer.pool_offset() % 128, 0U);
    EXPECT_LE(buffer.pool_offset() + buffer.size(), pool.memory_bytes());
    offsets.insert(buffer.pool_offset());
  }
  EXPECT_EQ(offsets.size(), 4U);
}

TEST(BufferPool, a_buffer_may_outlive_its_pool) {
  Buffer buffer;
  {
    BufferPool pool(4096, 2);
    buffer = pool.acquire();
  }
  std::memset(buffer.data(), 7, buffer.size());
  EXPECT_EQ(buffer.data()[4095], std::byte{7});
}

TEST(BufferPool, the_owner_hears_of_a_return_once_the_block_can_be_had_again) {
  int heard = 0;
  std::size_t available = 0;
  const BufferPool* watched = nullptr;
  BufferPool pool(64, 1, [&] {
    ++heard;
    available = watched->available();
  });
  watched = &pool;
  Buffer held = pool.acquire();
  Buffer other = held;
  held.reset();
  EXPECT_EQ(heard, 0);
  other.reset();
  EXPECT_EQ(heard, 1);
  EXPECT_EQ(available, 1U);
}

TEST(BufferPool, a_return_to_a_pool_that_still_had_blocks_is_not_told) {
  int heard = 0;
  BufferPool pool(64, 2, [&] { ++heard; });
  Buffer first = pool.acquire();
  Buffer second = pool.acquire();
  first.reset();
  EXPECT_EQ(heard, 1);
  second.reset();
  EXPECT_EQ(heard, 1);
  first = pool.acquire();
  first.reset();
  EXPECT_EQ(heard, 1);
}

TEST(BufferPool, two_threads_never_hold_the_same_block) {  // BP-1, BP-2
  BufferPool pool(64, 3);
  const auto work = [&pool](std::byte mark) {
    for (int i = 0; i < 5000; ++i) {
      const Buffer buffer = pool.acquire();
      if (!buffer) continue;
      std::memset(buffer.data(), static_cast<int>(mark), buffer.size());
      for (std::size_t at = 0; at < buffer.size(); ++at) ASSERT_EQ(buffer.data()[at], mark);
    }
  };
  std::thread first(work, std::byte{1});
  std::thread second(work, std::byte{2});
  first.join();
  second.join();
  EXPECT_EQ(pool.available(), 3U);
}

}  // namespace
}  // namespace maestro
