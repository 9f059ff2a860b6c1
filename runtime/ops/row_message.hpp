// SPDX-License-Identifier: Apache-2.0
// Blocks of a table's rows in messages between replicas: their number, their ids, their values, and, for stepped rows,
// their sums of squares. Each is 4 bytes wide. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/ops/row_table.hpp"

namespace maestro {

/// Returns the size of a block: 4 + rows (4 + 4 columns) bytes, and 4 bytes a row more if it is stepped.
[[nodiscard]] constexpr std::size_t row_block_bytes(std::size_t rows, std::size_t columns, bool stepped) {
  return 4 + rows * (4 + 4 * columns + (stepped ? 4 : 0));
}

/// Sizes of a table that is trained by rows.
struct TableSizes {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t per_token = 1;  ///< UpdateRule::per_token
};

/// Upper bounds for the bytes of messages. Member m of `members` owns a table's rows shard_range(rows, members, m).
struct RowMessageBounds {
  std::size_t gradients = 0;  ///< to an owner
  std::size_t all = 0;        ///< to all owners together
  std::size_t stepped = 0;    ///< from an owner
  /// `most_tokens`: tokens of a step.
  RowMessageBounds(const TableSizes& table, std::size_t members, std::int64_t most_tokens);
  /// Returns the bytes of a member's memory for messages, sent and received.
  [[nodiscard]] std::size_t memory(std::size_t members) const {
    return all + stepped + members * (gradients + stepped);
  }
};

/// Write a block to `to`; return its end.
/// Summed gradients: rows [first, end) of `merged`.
std::byte* write_gradients(const RowGradients::Merged& merged, std::size_t first, std::size_t end, std::byte* to);
/// Stepped rows `ids`: their values and sums of squares.
std::byte* write_stepped(std::span<const std::int32_t> ids, const ConstTensor& values, const ConstTensor& sums,
                         std::byte* to);

/// A block in a message.
struct RowBlock {
  std::span<const std::int32_t> ids;
  std::span<const float> rows;  ///< (ids, columns)
  std::span<const float> sums;  ///< empty unless it is stepped
};
/// Returns the block at the beginning of `message`, and removes it.
[[nodiscard]] RowBlock take_block(std::span<const std::byte>& message, std::size_t columns, bool stepped);
/// Writes the values and sums of a stepped block to the table.
void load_stepped(const RowBlock& block, const Tensor& values, const Tensor& sums);

}  // namespace maestro
