// SPDX-License-Identifier: Apache-2.0
// One rank's side of a collective as its peers see it, and the check that the sides fit together. Pure.
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
/// Of CollectiveCall::values, not of tensors.
[[nodiscard]] bool is_of_values(CollectiveKind kind);

/// The arguments of a call of Communicator; views of the caller's. Alone on its cache lines: its rank writes it while
/// others write theirs.
struct alignas(64) CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_reduce_sum;
  std::span<float> values{};                  ///< all_reduce_sum, all_reduce_max, reduce_to_shards, gather_shards
  Tensor from{};                              ///< all_gather_rows: part; reduce_scatter_rows: whole; exchange
  Tensor to{};                                ///< all_gather_rows: whole; reduce_scatter_rows: part; exchange
  std::span<const BlockTransfer> sends{};     ///< exchange
  std::span<const BlockTransfer> receives{};  ///< exchange
};

/// What is wrong with the side of `rank` in a group of `size` by itself, in words; empty when nothing is. Offsets and
/// sizes that only the other sides know are not looked at.
[[nodiscard]] std::string side_violation(const CollectiveCall& call, std::int64_t rank, std::int64_t size);

/// What is wrong with `calls`, one per rank, as far as it concerns what `rank` reads and writes; empty when nothing is.
/// Names the operation, the rank and both values. Every rank comes to the same verdict, but for the blocks of an
/// exchange: those are checked by the rank that receives them.
[[nodiscard]] std::string call_violation(std::span<const CollectiveCall> calls, std::int64_t rank);

/// Where the rows of `rank` begin in the whole of all_gather_rows or reduce_scatter_rows.
[[nodiscard]] std::int64_t first_row(std::span<const CollectiveCall> calls, std::int64_t rank);

/// Visits the k-th block that `peer` sends to `rank` with the k-th that `rank` receives from it:
/// visit(const TensorBlock* sent, const TensorBlock* received), nullptr for one that the other side does not know.
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
