// SPDX-License-Identifier: Apache-2.0
// Every element has exactly one thread, and grids stay within the device's limits.
#include "runtime/ops/cuda/launch_geometry.hpp"

#include <gtest/gtest.h>

namespace maestro::cuda {
namespace {

constexpr int h200 = 132;

TEST(LaunchGeometry, flat_grids_are_never_empty_nor_larger_than_a_few_waves) {
  EXPECT_EQ(flat_blocks(0, 1024, h200), 1U);
  EXPECT_EQ(flat_blocks(1024, 1024, h200), 1U);
  EXPECT_EQ(flat_blocks(1025, 1024, h200), 2U);
  EXPECT_EQ(flat_blocks(std::int64_t{1} << 40, 1024, h200), static_cast<unsigned>(h200 * waves_of_blocks));
}

TEST(LaunchGeometry, row_tiles_fill_a_block_with_as_many_rows_as_fit) {
  for (std::int64_t items = 1; items < 1000; ++items) {
    const RowTiles tiles = row_tiles(5000, items, h200);
    EXPECT_EQ(tiles.lanes() * tiles.rows_per_block(), flat_threads);
    EXPECT_TRUE(tiles.lanes() == flat_threads || tiles.lanes() >= items) << items;
    EXPECT_TRUE(tiles.lanes() == 1 || tiles.lanes() / 2 < items) << items;
  }
}

TEST(LaunchGeometry, a_normalised_row_fits_into_the_registers_of_its_threads) {
  for (std::int64_t columns = 4; columns <= 20000; columns += 4) {
    const NormTiles tiles = norm_tiles(columns, true);
    const int threads_of_row = tiles.kind == NormTiles::Kind::warp ? 32 : tiles.threads;
    const std::int64_t held = std::int64_t{threads_of_row} * norm_width * norm_packs;
    EXPECT_EQ(held >= columns, tiles.kind != NormTiles::Kind::wide) << columns;
    EXPECT_LE(tiles.threads, 32 * norm_most_warps);
  }
  EXPECT_EQ(norm_tiles(768, true).kind, NormTiles::Kind::warp);
  EXPECT_EQ(norm_tiles(2048, true).threads, 64);
  EXPECT_EQ(norm_tiles(768, false).kind, NormTiles::Kind::wide);
}

TEST(LaunchGeometry, the_backward_pass_of_norms_has_no_more_blocks_than_are_resident) {
  const NormTiles tiles = norm_tiles(768, true);
  EXPECT_EQ(norm_backward_blocks(1, tiles, h200), 1U);
  EXPECT_EQ(norm_backward_blocks(32768, tiles, h200), 3U * h200);
  EXPECT_EQ(norm_backward_blocks(32768, norm_tiles(8192, true), h200), static_cast<unsigned>(h200));
}

TEST(LaunchGeometry, column_tiles_cover_all_rows_once) {
  for (const std::int64_t rows : {0, 1, 31, 32, 33, 1000, 32768, 100001}) {
    for (const std::int64_t columns : {1, 7, 768, 3072, 50257}) {
      for (const int width : {1, 4}) {
        const ColumnTiles tiles = column_tiles(rows, columns, width, h200);
        EXPECT_GE(std::int64_t{tiles.column_blocks} * column_lanes * width, columns);
        EXPECT_GE(tiles.row_blocks * tiles.rows_per_block, rows);
        EXPECT_TRUE(rows == 0 || (tiles.row_blocks - 1) * tiles.rows_per_block < rows);
        EXPECT_LE(tiles.row_blocks, 65535U);
      }
    }
  }
}

TEST(LaunchGeometry, alignment_counts_the_row_as_well_as_its_memory) {
  alignas(16) float memory[8] = {};
  EXPECT_TRUE(aligned(memory, 8, 4, 4));
  EXPECT_FALSE(aligned(memory + 1, 8, 4, 4));
  EXPECT_FALSE(aligned(memory, 7, 4, 4));
  EXPECT_TRUE(aligned(nullptr, 8, 4, 4));
}

}  // namespace
}  // namespace maestro::cuda
