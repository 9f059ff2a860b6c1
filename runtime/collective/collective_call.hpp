// SPDX-License-Identifier: Apache-2.0
// A rank's side of a collective as its peers see it, and the check that the sides fit together. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/collective/communicator.hpp"

namespace maestro {

enum class CollectiveKind : std::uint8_t {
  all_reduce_sum,
  all_reduce_max,
  all_gather_rows,
  reduce_scatter_rows,
  reduce_to_shards,
  gather_shards,
  exchange
};
[[nodiscard]] std::string_view name_of(CollectiveKind kind);
/// Returns whether the operation uses CollectiveCall::values instead of tensors.
[[nodiscard]] bool is_of_values(CollectiveKind kind);

/// Arguments of a Communicator call, as views into the caller's memory. Has separate cache lines: its rank writes it
/// while other ranks write theirs.
struct alignas(64) CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_reduce_sum;
  std::span<float> values{};                  ///< all_reduce_sum, all_reduce_max, reduce_to_shards, gather_shards
  Tensor from{};                              ///< all_gather_rows: part; reduce_scatter_rows: all rows; exchange
  Tensor to{};                                ///< all_gather_rows: all rows; reduce_scatter_rows: part; exchange
  std::span<const BlockTransfer> sends{};     ///< exchange
  std::span<const BlockTransfer> receives{};  ///< exchange
};

/// Returns the error in the side of `rank` in a group of `size`, without the other sides; empty if it is valid. Offsets
/// and sizes that only the other sides hold are not checked.
[[nodiscard]] std::string side_violation(const CollectiveCall& call, std::int64_t rank, std::int64_t size);

/// Returns the error in `calls`, one per rank, as far as it concerns the memory that `rank` reads and writes; empty if
/// they are valid. Names the operation, the rank and both values. Every rank finds the same error, except for the
/// blocks of an exchange: the rank that receives a block checks it.
[[nodiscard]] std::string call_violation(std::span<const CollectiveCall> calls, std::int64_t rank);

/// Returns the first row of `rank` in the full tensor of all_gather_rows or reduce_scatter_rows.
[[nodiscard]] std::int64_t first_row(std::span<const CollectiveCall> calls, std::int64_t rank);

/// Visits the k-th block that `peer` sends to `rank` with the k-th that `rank` receives from it: visit(const
/// TensorBlock* sent, const TensorBlock* received), nullptr for a block that the other side lacks.
template <class Visit>
void for_each_match(std::span<const BlockTransfer> sends, std::int64_t rank, std::span<const BlockTransfer> receives,
                    std::int64_t peer, const Visit& visit) {
  const auto next_of = [](std::span<const BlockTransfer> transfers, std::size_t at, std::int64_t other) {
    while (at < transfers.size() && transfers[at].peer != other) ++at;
    return at;
  };
  std::size_t sent = next_of(sends, 0, rank);
  std::size_t received = next_of(receives, 0, peer);
  while (sent < sends.size() || received < receives.size()) {
    visit(sent < sends.size() ? &sends[sent].block : nullptr,
          received < receives.size() ? &receives[received].block : nullptr);
    sent = next_of(sends, sent + 1, rank);
    received = next_of(receives, received + 1, peer);
  }
}

}  // namespace maestro
