// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/reduction_round.hpp"

#include <algorithm>

namespace maestro {

ShardRange shard_range(std::size_t elements, std::size_t replicas, std::size_t index) {
  constexpr std::size_t grain = 16;
  const std::size_t grains = (elements + grain - 1) / grain;
  const std::size_t first = std::min(elements, grains * index / replicas * grain);
  const std::size_t end = std::min(elements, grains * (index + 1) / replicas * grain);
  return {first, end - first};
}

}  // namespace maestro
