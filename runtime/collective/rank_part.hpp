// SPDX-License-Identifier: Apache-2.0
// How rows, or tokens of a vocabulary, are cut over the ranks of a group: row_part() of runtime/graph/layout.hpp, a
// room above this one; a test holds the two together.
#pragma once

#include <cstdint>

#include "runtime/collective/communicator.hpp"

namespace maestro {

struct RankPart {
  std::int64_t first = 0;
  std::int64_t count = 0;
  [[nodiscard]] std::int64_t end() const { return first + count; }
  friend bool operator==(const RankPart&, const RankPart&) = default;
};

[[nodiscard]] constexpr RankPart rank_part(std::int64_t count, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t first = count * rank / ranks;
  return {first, count * (rank + 1) / ranks - first};
}

/// The part of this rank.
[[nodiscard]] inline RankPart rank_part(std::int64_t count, const Communicator& group) {
  return rank_part(count, group.size(), group.rank());
}

}  // namespace maestro
