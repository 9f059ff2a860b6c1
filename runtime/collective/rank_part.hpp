// SPDX-License-Identifier: Apache-2.0
// Division of rows, or of a vocabulary's tokens, over a group's ranks.
#pragma once

#include <cstdint>

#include "runtime/collective/communicator.hpp"
#include "runtime/core/range.hpp"

namespace maestro {

using RankPart = RowRange;

[[nodiscard]] constexpr RankPart rank_part(std::int64_t count, std::int64_t ranks, std::int64_t rank) {
  return row_part(count, ranks, rank);
}

/// Returns the part of this rank.
[[nodiscard]] inline RankPart rank_part(std::int64_t count, const Communicator& group) {
  return rank_part(count, group.size(), group.rank());
}

}  // namespace maestro
