// SPDX-License-Identifier: Apache-2.0
// Division of this folder's kernels into blocks and threads. Pure arithmetic, no CUDA.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace maestro::cuda {

[[nodiscard]] constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Returns whether rows of `columns` elements of `bytes` bytes each, adjacent from `memory` on, all begin at a multiple
/// of `width` elements.
[[nodiscard]] inline bool aligned(const void* memory, std::int64_t columns, std::size_t bytes, int width) {
  const std::size_t step = bytes * static_cast<std::size_t>(width);
  return memory == nullptr || (reinterpret_cast<std::uintptr_t>(memory) % step == 0 && columns % width == 0);
}

// ---- flat vectors: each block takes tiles in turn ----

inline constexpr int flat_threads = 256;
inline constexpr int flat_width = 8;  ///< elements of a thread's access
inline constexpr int flat_steps = 2;  ///< accesses in flight
/// Blocks per multiprocessor of kernels that walk over their data; several times the resident blocks, for balance.
inline constexpr int waves_of_blocks = 16;

[[nodiscard]] constexpr unsigned flat_blocks(std::int64_t count, std::int64_t tile, int multiprocessors) {
  const std::int64_t most = std::int64_t{multiprocessors} * waves_of_blocks;
  return static_cast<unsigned>(std::clamp<std::int64_t>(ceil_divide(count, tile), 1, most));
}

// ---- rows: a block of 256 threads is rows_per_block rows of 2^lanes_log2 threads ----

struct RowTiles {
  int lanes_log2 = 0;
  unsigned blocks = 1;
  [[nodiscard]] constexpr int lanes() const { return 1 << lanes_log2; }
  [[nodiscard]] constexpr int rows_per_block() const { return flat_threads >> lanes_log2; }
};
/// Returns the tiles for `items` per row, each a thread's work.
[[nodiscard]] constexpr RowTiles row_tiles(std::int64_t rows, std::int64_t items, int multiprocessors) {
  RowTiles tiles;
  const auto lanes = static_cast<std::uint64_t>(std::clamp<std::int64_t>(items, 1, flat_threads));
  tiles.lanes_log2 = static_cast<int>(std::bit_width(std::bit_ceil(lanes))) - 1;
  tiles.blocks = flat_blocks(rows, tiles.rows_per_block(), multiprocessors);
  return tiles;
}

// ---- normalisation: a row is held in the registers of a warp, or of all the block's warps ----

inline constexpr int norm_width = 4;       ///< elements per access
inline constexpr int norm_packs = 8;       ///< accesses per thread that hold its part of the row
inline constexpr int norm_rows_block = 4;  ///< warps of a block with a row per warp
inline constexpr int norm_most_warps = 8;  ///< warps of a row, at most

struct NormTiles {
  enum class Kind : std::uint8_t {
    warp,   ///< a row per warp, norm_rows_block rows per block
    block,  ///< a row per block
    wide    ///< a row per block, read again in every pass: it does not fit, or its alignment does not
  };
  Kind kind = Kind::warp;
  int threads = 32;        ///< threads of a block
  int rows_per_block = 1;  ///< rows processed at a time
};
/// Chooses the tiles. `packed`: rows can be read norm_width elements at a time; other rows are rare and use `wide`.
[[nodiscard]] constexpr NormTiles norm_tiles(std::int64_t columns, bool packed) {
  const NormTiles wide{NormTiles::Kind::wide, 32 * norm_most_warps, 1};
  constexpr std::int64_t of_warp = std::int64_t{32} * norm_width * norm_packs;
  if (!packed) return wide;
  if (columns <= of_warp) return {NormTiles::Kind::warp, 32 * norm_rows_block, norm_rows_block};
  const auto warps = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(ceil_divide(columns, of_warp))));
  return warps <= norm_most_warps ? NormTiles{NormTiles::Kind::block, 32 * warps, 1} : wide;
}
/// Backward blocks; each keeps the sums over its rows. As many as are resident at about 170 registers per thread.
inline constexpr int norm_backward_threads = 384;  ///< threads per multiprocessor
[[nodiscard]] constexpr unsigned norm_backward_blocks(std::int64_t rows, const NormTiles& tiles, int multiprocessors) {
  const std::int64_t most = std::int64_t{multiprocessors} * std::max(1, norm_backward_threads / tiles.threads);
  return static_cast<unsigned>(std::clamp<std::int64_t>(ceil_divide(rows, tiles.rows_per_block), 1, most));
}

// ---- losses: a row of logits per block, kept in shared memory if two blocks of a multiprocessor fit ----

inline constexpr int loss_most_threads = 512;
inline constexpr int loss_least_threads = 128;
inline constexpr int most_support = 256;  ///< tokens of a top-k teacher, each a thread's
inline constexpr std::size_t loss_row_bytes = std::size_t{104} * 1024;
inline constexpr int sum_rows_threads = 1024;

struct LossTiles {
  int threads = loss_most_threads;
  std::size_t shared_bytes = 0;  ///< 0: the row is read again from memory
};
/// Returns the columns of a row's copy: full accesses, and enough that the memory after it is aligned for every type
/// and access.
[[nodiscard]] constexpr std::int64_t loss_copy_columns(std::int64_t vocabulary) {
  return ceil_divide(vocabulary, flat_width) * flat_width;
}
/// Returns the tiles of a loss. `bytes`: size of a column, student and teacher; `width`: columns of an access.
[[nodiscard]] constexpr LossTiles loss_tiles(std::int64_t vocabulary, std::size_t bytes, int width, int k) {
  LossTiles tiles;
  const auto accesses = static_cast<std::uint64_t>(ceil_divide(vocabulary, width));
  const auto wanted = static_cast<int>(std::min<std::uint64_t>(std::bit_ceil(accesses), loss_most_threads));
  tiles.threads = std::max({wanted, loss_least_threads, k > loss_least_threads ? most_support : 0});
  const std::size_t row = static_cast<std::size_t>(loss_copy_columns(vocabulary)) * bytes;
  if (row <= loss_row_bytes) tiles.shared_bytes = row;
  return tiles;
}

// ---- sums over rows: blocks of 32 x 8 threads, a column pack per lane, rows strided over the warps ----

inline constexpr int column_lanes = 32;
inline constexpr int column_warps = 8;

struct ColumnTiles {
  unsigned column_blocks = 1;
  unsigned row_blocks = 1;  ///< each leaves a row of partial sums
  std::int64_t rows_per_block = 0;
};
[[nodiscard]] constexpr ColumnTiles column_tiles(std::int64_t rows, std::int64_t columns, int width,
                                                 int multiprocessors) {
  ColumnTiles tiles;
  tiles.column_blocks = static_cast<unsigned>(std::max<std::int64_t>(1, ceil_divide(columns, column_lanes * width)));
  // Enough blocks to fill the device, but at least four rows for each warp.
  constexpr std::int64_t least_rows = 4 * column_warps;
  constexpr std::int64_t resident = 8;  // blocks per multiprocessor
  const std::int64_t wanted = ceil_divide(std::int64_t{multiprocessors} * resident, tiles.column_blocks);
  const std::int64_t blocks = std::clamp<std::int64_t>(ceil_divide(rows, least_rows), 1, wanted);
  tiles.rows_per_block = ceil_divide(std::max<std::int64_t>(rows, 1), blocks);
  tiles.row_blocks = static_cast<unsigned>(ceil_divide(std::max<std::int64_t>(rows, 1), tiles.rows_per_block));
  return tiles;
}

}  // namespace maestro::cuda
