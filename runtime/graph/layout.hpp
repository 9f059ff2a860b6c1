// SPDX-License-Identifier: Apache-2.0
// Layout of a section replica over devices ("ranks"), and the part of a port's tensor that each rank holds. Pure.
//
// A micro-batch of M rows lies over `context` x `tensor` ranks, rank = context index * tensor + tensor index:
//   context  the rows are cut into equal consecutive parts; attention exchanges rows for heads (DeepSpeed Ulysses,
//            Jacobs et al. 2023), and ranks with the same heads divide the queries, so its work is even for any mask
//   tensor   matrices are cut by columns, rows, heads and vocabulary (Megatron, Shoeybi et al. 2019); between them the
//            rows of a context part are cut once more (sequence parallelism, Korthikanti et al. 2022)
// A layer's experts may have another mapping over the same ranks (MoE Parallel Folding, Liu et al. 2025): each of
// `expert` consecutive ranks holds a part of the experts, and the ranks after them hold copies.
// Each pipeline stage is a separate section of the graph.
//
// Under either mapping a micro-batch's rows, and its routes' rows, are each on a single rank (EM-1, one home).
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/core/range.hpp"

namespace maestro {

/// A rank's part of a port's (M, columns) tensor.
enum class Sharding : std::uint8_t {
  replicated,    ///< all of it, on every rank
  context_rows,  ///< the rows of its context part, the same on its tensor ranks
  rank_rows,     ///< rows of its tensor part in its context part: every row is on one rank
  vocabulary     ///< rows of its context part, with the columns of its tensor part
};

struct Layout {
  std::int64_t tensor = 1;
  std::int64_t context = 1;
  std::int64_t expert = 1;  ///< ranks that share a layer's experts; 1: each is cut over the tensor ranks
  [[nodiscard]] constexpr std::int64_t ranks() const { return tensor * context; }
  [[nodiscard]] constexpr std::int64_t tensor_of(std::int64_t rank) const { return rank % tensor; }
  [[nodiscard]] constexpr std::int64_t context_of(std::int64_t rank) const { return rank / tensor; }
  /// Returns the index of the rank among the `expert` ranks that share a layer's experts, and the index of its copy.
  [[nodiscard]] constexpr std::int64_t expert_of(std::int64_t rank) const { return rank % expert; }
  [[nodiscard]] constexpr std::int64_t copy_of(std::int64_t rank) const { return rank / expert; }
  /// Returns how many ranks, from any on, hold all parameters together.
  [[nodiscard]] constexpr std::int64_t holders() const { return std::max(tensor, expert); }
  /// Returns the rows of a micro-batch of `rows` rows that `rank` holds under `sharding`.
  [[nodiscard]] constexpr RowRange rows(Sharding sharding, std::int64_t rows, std::int64_t rank) const {
    if (sharding == Sharding::replicated) return {0, rows};
    const RowRange part = row_part(rows, context, context_of(rank));
    if (sharding != Sharding::rank_rows) return part;
    const RowRange own = row_part(part.count, tensor, tensor_of(rank));
    return {part.first + own.first, own.count};
  }
  /// Returns the columns of a tensor of `columns` columns that `rank` holds under `sharding`.
  [[nodiscard]] constexpr RowRange columns(Sharding sharding, std::int64_t columns, std::int64_t rank) const {
    return sharding == Sharding::vocabulary ? row_part(columns, tensor, tensor_of(rank)) : RowRange{0, columns};
  }
  friend bool operator==(const Layout&, const Layout&) = default;
};

}  // namespace maestro
