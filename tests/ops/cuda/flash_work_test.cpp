// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/flash_work.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace maestro::cuda {
namespace {

std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> offsets{0};
  for (const std::int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

/// Checks FW-1 and FW-2: every row exactly once, in the tile of its position.
void check(const std::vector<std::int32_t>& lengths, std::int32_t tile_rows) {
  SCOPED_TRACE(::testing::PrintToString(lengths) + " in tiles of " + std::to_string(tile_rows));
  const auto offsets = offsets_of(lengths);
  const auto sequences = static_cast<std::int32_t>(lengths.size());
  const std::int64_t tiles = flash_tiles(offsets.back(), sequences, tile_rows);
  std::vector<int> seen(static_cast<std::size_t>(offsets.back()));
  std::int64_t empty = 0;
  for (std::int32_t number = 0; number < tiles; ++number) {
    const FlashTile tile = flash_tile(offsets.data(), sequences, tile_rows, number);
    ASSERT_LE(tile.begin, tile.first);
    ASSERT_LE(tile.first, tile.end);
    ASSERT_LE(tile.end, tile.stop);
    ASSERT_LE(tile.end - tile.first, tile_rows);
    if (tile.first < tile.end) {
      ASSERT_EQ((tile.first - tile.begin) % tile_rows, 0);
    }
    empty += tile.first == tile.end ? 1 : 0;
    for (std::int32_t row = tile.first; row < tile.end; ++row) ++seen[static_cast<std::size_t>(row)];
  }
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  EXPECT_LE(empty, sequences);
}

TEST(FlashWork, every_row_belongs_to_one_tile) {
  for (const std::int32_t rows : {1, 2, 16, 64}) {
    check({1}, rows);
    check({0, 1, 0}, rows);
    check({0, 0, 0}, rows);
    check({64, 64, 64}, rows);
    check({63, 65, 1, 128, 127, 129}, rows);
    check(std::vector<std::int32_t>(100, 1), rows);
  }
}

TEST(FlashWork, every_row_belongs_to_one_tile_of_random_lengths) {
  std::mt19937 generator(7);
  std::uniform_int_distribution<std::int32_t> length(0, 200);
  std::uniform_int_distribution<std::size_t> count(1, 20);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int32_t> lengths(count(generator));
    for (std::int32_t& value : lengths) value = length(generator);
    check(lengths, round % 2 == 0 ? 64 : 32);
  }
}

TEST(FlashWork, no_sequences_have_no_tiles) {
  EXPECT_EQ(flash_tiles(0, 0, 64), 0);
}

}  // namespace
}  // namespace maestro::cuda
