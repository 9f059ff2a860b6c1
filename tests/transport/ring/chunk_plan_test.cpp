// SPDX-License-Identifier: Apache-2.0
#include "transport/ring/chunk_plan.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace maestro {
namespace {

static_assert(chunk_count(0, 4) == 0 && chunk_count(1, 4) == 1 && chunk_count(4, 4) == 1 && chunk_count(5, 4) == 2);

TEST(ChunkPlan, an_empty_piece_is_its_header_alone) {  // CP-2
  const ChunkPlan plan(0, 1024);
  EXPECT_EQ(plan.begin(), plan.end());
  EXPECT_EQ(writes_per_piece(0, 1024), 1u);
}

TEST(ChunkPlan, a_limit_of_zero_means_one_chunk) {
  const ChunkPlan plan(12345, 0);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0], (Chunk{0, 12345}));
}

TEST(ChunkPlan, sizes_near_the_top_of_the_range_do_not_overflow) {
  const std::size_t huge = ~std::size_t{0};
  EXPECT_EQ(chunk_count(huge, huge), 1u);
  EXPECT_EQ(chunk_count(huge, huge - 1), 2u);
  EXPECT_EQ((ChunkPlan(huge, huge - 1)[1]), (Chunk{huge - 1, 1}));
}

TEST(ChunkPlan, chunks_cover_the_payload_exactly_for_any_size) {  // CP-1, CP-2, CP-3
  std::mt19937_64 random(20240517);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t bytes = random() % 5000;
    const std::size_t limit = 1 + random() % 700;
    SCOPED_TRACE(std::to_string(bytes) + " bytes in chunks of " + std::to_string(limit));
    const ChunkPlan plan(bytes, limit);
    std::size_t covered = 0;
    std::size_t count = 0;
    for (const auto chunk : plan) {
      ASSERT_EQ(chunk.offset, covered);
      ASSERT_GT(chunk.bytes, 0u);
      ASSERT_LE(chunk.bytes, limit);
      covered += chunk.bytes;
      ++count;
    }
    ASSERT_EQ(covered, bytes);
    ASSERT_EQ(count, plan.size());
    ASSERT_EQ(writes_per_piece(bytes, limit), count + 1);
  }
}

}  // namespace
}  // namespace maestro
