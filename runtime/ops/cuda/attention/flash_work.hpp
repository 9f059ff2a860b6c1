// SPDX-License-Identifier: Apache-2.0
// Assignment of a sequence's rows to a block of the attention kernels. Pure; the same function runs on the device.
//
// Sequences of a packed micro-batch are cut into tiles of R rows. Numbering tiles densely would need a prefix sum over
// the sequences' tile counts; instead sequence s begins at tile number floor(offsets[s] / R) + s.
// FW-1 (enough numbers): these beginnings leave room for every sequence's ceil(length / R) tiles, since
//       floor((o + n) / R) + 1 >= floor(o / R) + ceil(n / R).
// FW-2 (unique tiles): so every row belongs to exactly one of flash_tiles(...) numbers; at most S numbers have zero
//       rows.
#pragma once

#include <cstdint>

#include "runtime/ops/element_math.hpp"

namespace maestro::cuda {

/// Rows [first, end) of the micro-batch; row `first` is at `position` in its sequence, which spans [begin, stop).
struct FlashTile {
  std::int32_t begin = 0;
  std::int32_t stop = 0;
  std::int32_t first = 0;
  std::int32_t end = 0;  ///< equal to first if the tile is empty
  std::int32_t sequence = 0;
};

/// Returns the number of tile numbers for M packed rows in S sequences.
MAESTRO_HD constexpr std::int64_t flash_tiles(std::int64_t rows, std::int64_t sequences, std::int64_t tile_rows) {
  return rows / tile_rows + sequences;
}

/// Returns the tile with a number. `offsets` has S + 1 entries; 0 <= number < flash_tiles(...).
MAESTRO_HD constexpr FlashTile flash_tile(const std::int32_t* offsets, std::int32_t sequences, std::int32_t tile_rows,
                                          std::int32_t number) {
  std::int32_t low = 0;  // the last sequence that begins at or before `number` is in [low, high)
  std::int32_t high = sequences;
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    if (offsets[middle] / tile_rows + middle <= number) {
      low = middle;
    } else {
      high = middle;
    }
  }
  FlashTile tile;
  tile.sequence = low;
  tile.begin = offsets[low];
  tile.stop = offsets[low + 1];
  const std::int32_t rows_before = (number - tile.begin / tile_rows - low) * tile_rows;
  tile.first = tile.begin + rows_before < tile.stop ? tile.begin + rows_before : tile.stop;
  tile.end = tile.first + tile_rows < tile.stop ? tile.first + tile_rows : tile.stop;
  return tile;
}

}  // namespace maestro::cuda
