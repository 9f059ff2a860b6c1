// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/row_message.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/collective/reduction_round.hpp"

namespace maestro {

namespace {

template <class Value>
std::byte* write_values_of(std::span<const Value> values, std::byte* to) {
  if (!values.empty()) std::memcpy(to, values.data(), values.size_bytes());
  return to + values.size_bytes();
}

std::byte* write_ids(std::span<const std::int32_t> ids, std::byte* to) {
  const auto count = static_cast<std::uint32_t>(ids.size());
  return write_values_of(ids, write_values_of(std::span(&count, 1), to));
}

template <class Value>
std::span<const Value> take_values(std::span<const std::byte>& message, std::size_t count) {
  const auto* const first = reinterpret_cast<const Value*>(message.data());
  message = message.subspan(count * sizeof(Value));
  return {first, count};
}

}  // namespace

RowMessageBounds::RowMessageBounds(const TableSizes& table, std::size_t members, std::int64_t most_tokens) {
  const std::size_t read = std::min(table.rows, static_cast<std::size_t>(most_tokens) * table.per_token);
  std::size_t owned = 0;
  for (std::size_t owner = 0; owner < members; ++owner) {
    owned = std::max(owned, shard_range(table.rows, members, owner).count);
  }
  owned = std::min(owned, read);
  gradients = row_block_bytes(owned, table.columns, false);
  all = row_block_bytes(read, table.columns, false) + (members - 1) * row_block_bytes(0, table.columns, false);
  stepped = row_block_bytes(owned, table.columns, true);
}

std::byte* write_gradients(const RowGradients::Merged& merged, std::size_t first, std::size_t end, std::byte* to) {
  const std::size_t columns = merged.ids.empty() ? 0 : merged.sums.size() / merged.ids.size();
  to = write_ids(std::span(merged.ids).subspan(first, end - first), to);
  return write_values_of(std::span(merged.sums).subspan(first * columns, (end - first) * columns), to);
}

std::byte* write_stepped(std::span<const std::int32_t> ids, const ConstTensor& values, const ConstTensor& sums,
                         std::byte* to) {
  to = write_ids(ids, to);
  for (const std::int32_t id : ids) to = write_values_of(values.row_slice(id, 1).span<float>(), to);
  for (const std::int32_t id : ids) to = write_values_of(sums.flat_slice(id, 1).span<float>(), to);
  return to;
}

RowBlock take_block(std::span<const std::byte>& message, std::size_t columns, bool stepped) {
  const std::size_t count = take_values<std::uint32_t>(message, 1).front();
  RowBlock block;
  block.ids = take_values<std::int32_t>(message, count);
  block.rows = take_values<float>(message, count * columns);
  if (stepped) block.sums = take_values<float>(message, count);
  return block;
}

void load_stepped(const RowBlock& block, const Tensor& values, const Tensor& sums) {
  const auto columns = static_cast<std::size_t>(values.columns());
  for (std::size_t at = 0; at < block.ids.size(); ++at) {
    const std::int64_t row = block.ids[at];
    std::ranges::copy(block.rows.subspan(at * columns, columns), values.row_slice(row, 1).data<float>());
    sums.data<float>()[row] = block.sums[at];
  }
}

}  // namespace maestro
