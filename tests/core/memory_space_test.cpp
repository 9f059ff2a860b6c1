// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/memory_space.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/core/arena.hpp"
#include "runtime/core/buffer.hpp"
#include "runtime/core/pending.hpp"

namespace maestro {
namespace {

/// Memory that counts as a device's: its blocks are accessed only through it.
class CountedSpace final : public MemorySpace {
 public:
  [[nodiscard]] bool host() const override { return false; }
  std::byte* allocate(std::size_t bytes) override {
    held_ += bytes;
    return host_memory().allocate(bytes);
  }
  void release(std::byte* block, std::size_t bytes) noexcept override {
    held_ -= bytes;
    host_memory().release(block, bytes);
  }
  void read(std::byte* host_to, const std::byte* from, std::size_t bytes) override {
    host_memory().read(host_to, from, bytes);
  }
  void write(std::byte* to, const std::byte* from, std::size_t bytes) override { host_memory().write(to, from, bytes); }
  void zero(std::byte* to, std::size_t bytes) override { host_memory().zero(to, bytes); }
  [[nodiscard]] std::size_t held() const { return held_; }

 private:
  std::size_t held_ = 0;
};

TEST(MemorySpace, blocks_of_the_host_are_zero_and_take_what_is_written) {  // MS-2
  MemorySpace& memory = host_memory();
  ASSERT_TRUE(memory.host());
  const SpaceMemory block(memory, 1000);
  EXPECT_TRUE(std::all_of(block.data(), block.data() + 1000, [](std::byte b) { return b == std::byte{0}; }));
  const std::vector<std::byte> seven(100, std::byte{7});
  memory.write(block.data() + 5, seven.data(), seven.size());
  std::vector<std::byte> found(102);
  memory.read(found.data(), block.data() + 4, found.size());
  EXPECT_EQ(found.front(), std::byte{0});
  EXPECT_TRUE(std::equal(seven.begin(), seven.end(), found.begin() + 1));
  memory.zero(block.data(), 1000);
  EXPECT_EQ(block.data()[50], std::byte{0});
  memory.read(nullptr, nullptr, 0);
}

TEST(MemorySpace, a_block_goes_back_with_its_last_owner) {
  CountedSpace space;
  {
    SpaceMemory first(space, 100);
    SpaceMemory second(std::move(first));
    EXPECT_EQ(first.size(), 0U);
    EXPECT_EQ(space.held(), 100U);
    second = SpaceMemory(space, 50);
    EXPECT_EQ(space.held(), 50U);
    const SpaceMemory none(space, 0);
    EXPECT_EQ(none.data(), nullptr);
  }
  EXPECT_EQ(space.held(), 0U);
}

TEST(MemorySpace, an_arena_takes_its_chunks_from_its_space_and_aligns_for_devices) {
  CountedSpace space;
  {
    Arena arena(4096, space);
    EXPECT_EQ(&arena.space(), &space);
    std::byte* const first = arena.allocate(1);
    std::byte* const second = arena.allocate(1);
    EXPECT_EQ(second - first, 256);
    EXPECT_EQ(space.held(), arena.mapped_bytes());
    arena.release(first, 1);
    arena.release(second, 1);
    EXPECT_EQ(arena.used_bytes(), 0U);
  }
  EXPECT_EQ(space.held(), 0U);
}

TEST(MemorySpace, buffers_know_where_they_lie) {
  CountedSpace space;
  Buffer last;
  {
    BufferPool pool(100, 2, {}, space);
    last = pool.acquire();
    EXPECT_EQ(&last.space(), &space);
    EXPECT_EQ(&pool.space(), &space);
  }
  EXPECT_GT(space.held(), 0U) << "BP-2: a buffer outlives its pool";
  last.reset();
  EXPECT_EQ(space.held(), 0U);
  EXPECT_TRUE(Buffer().space().host());
  EXPECT_FALSE(space.reaches(host_memory()));
  EXPECT_TRUE(space.reaches(space));
}

TEST(Pending, a_value_that_comes_later_is_read_when_it_is_asked_for) {
  const Pending<double> known(2.0);
  EXPECT_EQ(known.get(), 2.0);
  const auto written = std::make_shared<double>(0);
  const Pending<double> later{std::shared_ptr<const double>(written)};
  PendingSum sum;
  sum.add(known);
  sum.add(later);
  *written = 3;  // as a device does
  EXPECT_EQ(later.get(), 3.0);
  EXPECT_EQ(sum.get(), 5.0);
}

TEST(Pending, a_sum_of_parts_is_formed_when_it_is_asked_for) {
  const auto written = std::make_shared<double>(0);
  const Pending<double> sum(std::vector<Pending<double>>{2.0, Pending<double>{std::shared_ptr<const double>(written)}});
  const Pending<double> copy = sum;
  *written = 3;
  EXPECT_EQ(sum.get(), 5.0);
  EXPECT_EQ(copy.get(), 5.0);
  EXPECT_EQ(Pending<double>(std::vector<Pending<double>>()).get(), 0.0);
}

}  // namespace
}  // namespace maestro
