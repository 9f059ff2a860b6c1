// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/arena.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>
#include <vector>

namespace maestro {
namespace {

TEST(Arena, blocks_lie_on_cache_lines_and_never_overlap) {
  Arena arena(4096);
  std::byte* const a = arena.allocate(1);
  std::byte* const b = arena.allocate(65);
  std::byte* const c = arena.allocate(64);
  for (const std::byte* block : {a, b, c}) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
  EXPECT_TRUE(a + 64 <= b || b + 128 <= a);
  EXPECT_TRUE(b + 128 <= c || c + 64 <= b);
  EXPECT_EQ(arena.used_bytes(), 64U + 128U + 64U);
}

TEST(Arena, releasing_everything_leaves_one_block_as_large_as_the_chunk) {  // AR-2
  Arena arena(4096);
  std::byte* blocks[8];
  for (std::byte*& block : blocks) block = arena.allocate(512);
  EXPECT_EQ(arena.mapped_bytes(), 4096U);
  for (const int i : {3, 0, 7, 1, 2, 5, 4, 6}) arena.release(blocks[i], 512);
  EXPECT_EQ(arena.used_bytes(), 0U);
  std::byte* const whole = arena.allocate(4096);
  EXPECT_EQ(arena.mapped_bytes(), 4096U) << "a split chunk would not hold it";
  arena.release(whole, 4096);
}

TEST(Arena, the_smallest_hole_that_fits_is_taken) {
  Arena arena(4096);
  std::byte* const large = arena.allocate(1024);
  std::byte* const fence = arena.allocate(64);
  std::byte* const small = arena.allocate(128);
  std::byte* const end = arena.allocate(64);
  arena.release(large, 1024);
  arena.release(small, 128);
  EXPECT_EQ(arena.allocate(128), small);
  EXPECT_EQ(arena.allocate(1024), large);
  (void)fence;
  (void)end;
}

TEST(Arena, a_block_larger_than_a_chunk_gets_its_own) {
  Arena arena(4096);
  std::byte* const block = arena.allocate(100000);
  std::memset(block, 1, 100000);
  EXPECT_GE(arena.mapped_bytes(), 100000U);
  arena.release(block, 100000);
  EXPECT_EQ(arena.used_bytes(), 0U);
}

TEST(Arena, holds_its_chunks_up_to_the_furthest_block) {
  Arena arena(4096);
  std::byte* const a = arena.allocate(1024);
  std::byte* const b = arena.allocate(512);
  EXPECT_EQ(arena.held_bytes(), 1536U);
  arena.release(a, 1024);
  std::byte* const c = arena.allocate(64);
  EXPECT_EQ(arena.held_bytes(), 1536U) << "in the gap";
  std::byte* const d = arena.allocate(1024);
  EXPECT_EQ(arena.held_bytes(), 2560U) << "the gap is too small for it";
  std::byte* const e = arena.allocate(8192);
  EXPECT_GE(arena.held_bytes(), 2560U + 8192U);
  EXPECT_LT(arena.held_bytes(), arena.mapped_bytes());
  for (const auto& [block, bytes] : {std::pair(b, 512), {c, 64}, {d, 1024}, {e, 8192}}) {
    arena.release(block, static_cast<std::size_t>(bytes));
  }
  EXPECT_GE(arena.held_bytes(), 2560U + 8192U);
}

TEST(Arena, the_peak_stays_when_memory_is_released) {
  Arena arena(4096);
  std::byte* const a = arena.allocate(1024);
  std::byte* const b = arena.allocate(512);
  arena.release(a, 1024);
  arena.release(b, 512);
  EXPECT_EQ(arena.peak_bytes(), 1536U);
}

TEST(Arena, tensors_have_the_shape_and_dtype_asked_for) {
  Arena arena(4096);
  const Tensor tensor = arena.allocate(Shape{3, 5}, DType::bf16);
  EXPECT_EQ(tensor.shape(), (Shape{3, 5}));
  EXPECT_EQ(tensor.dtype(), DType::bf16);
  arena.release(tensor);
  EXPECT_EQ(arena.used_bytes(), 0U);
}

/// Runs a micro-batch with random sizes and lifetimes; every live block holds its number.
void random_pass(Arena& arena, unsigned seed) {
  struct Live {
    std::byte* begin;
    std::size_t bytes;
    std::byte mark;
  };
  std::mt19937 generator(seed);
  std::vector<Live> live;
  std::size_t used = 0;
  const auto drop = [&](std::size_t at) {
    const Live block = live[at];
    for (std::size_t i = 0; i < block.bytes; ++i) ASSERT_EQ(block.begin[i], block.mark) << "seed " << seed;
    arena.release(block.begin, block.bytes);
    used -= (block.bytes + 63) / 64 * 64;
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (int step = 0; step < 2000; ++step) {
    if (!live.empty() && generator() % 2 == 0) {
      drop(generator() % live.size());
    } else {
      const std::size_t bytes = 1 + generator() % 3000;
      live.push_back({arena.allocate(bytes), bytes, static_cast<std::byte>(step)});
      std::memset(live.back().begin, static_cast<int>(live.back().mark), bytes);
      used += (bytes + 63) / 64 * 64;
    }
    ASSERT_EQ(arena.used_bytes(), used) << "seed " << seed;  // AR-1
    ASSERT_LE(arena.used_bytes(), arena.mapped_bytes());
  }
  while (!live.empty()) drop(live.size() - 1);
}

TEST(Arena, random_passes_keep_blocks_apart_and_repeat_without_mapping_more) {  // AR-1, AR-2, AR-3
  for (const unsigned seed : {1U, 2U, 3U}) {
    Arena arena(16384);
    std::size_t mapped = 0;
    for (int pass = 0; pass < 6; ++pass) {
      mapped = arena.mapped_bytes();
      random_pass(arena, seed);
      EXPECT_EQ(arena.used_bytes(), 0U);
    }
    EXPECT_EQ(arena.mapped_bytes(), mapped) << "seed " << seed;
    random_pass(arena, seed);
    EXPECT_EQ(arena.mapped_bytes(), mapped) << "seed " << seed;
  }
}

/// Returns chunks from a buffer in rising or falling order, with or without gaps.
class OrderedMemory final : public MemorySpace {
 public:
  OrderedMemory(bool upwards, std::size_t gap) : upwards_(upwards), gap_(gap) {}
  [[nodiscard]] bool host() const override { return true; }
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override {
    const std::size_t first = taken_;
    taken_ += bytes + gap_;
    return upwards_ ? buffer_.data() + first : buffer_.data() + buffer_.size() - first - bytes;
  }
  void release(std::byte* /*block*/, std::size_t /*bytes*/) noexcept override {}
  void read(std::byte* /*to*/, const std::byte* /*from*/, std::size_t /*bytes*/) override {}
  void write(std::byte* /*to*/, const std::byte* /*from*/, std::size_t /*bytes*/) override {}
  void zero(std::byte* /*to*/, std::size_t /*bytes*/) override {}

 private:
  bool upwards_;
  std::size_t gap_;
  std::size_t taken_ = 0;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(std::size_t{8} << 20);
};

TEST(Arena, takes_the_same_bytes_wherever_its_chunks_lie) {  // AR-4
  std::vector<std::vector<std::size_t>> taken;
  for (const auto& [upwards, gap] : {std::pair(true, 0), {false, 0}, {true, 4096}, {false, 4096}}) {
    OrderedMemory memory(upwards, static_cast<std::size_t>(gap));
    Arena arena(16384, memory);
    std::vector<std::size_t>& bytes = taken.emplace_back();
    for (unsigned seed = 1; seed <= 5; ++seed) {
      random_pass(arena, seed);
      bytes.insert(bytes.end(), {arena.mapped_bytes(), arena.held_bytes(), arena.peak_bytes()});
    }
  }
  EXPECT_GT(taken.front().front(), 16384U * 3) << "there are several chunks";
  for (const std::vector<std::size_t>& of_others : taken) EXPECT_EQ(of_others, taken.front());
}

}  // namespace
}  // namespace maestro
