// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda_head_sizes.hpp"

#include <algorithm>

namespace maestro {

std::string cuda_head_size_refusal(std::int64_t head_size) {
  constexpr std::int64_t least = 16;
  constexpr std::int64_t most = 256;
  constexpr std::int64_t step = 8;  // so that a head's rows begin at multiples of 16 bytes
  if (head_size >= least && head_size <= most && head_size % step == 0) return {};
  const std::int64_t nearest = std::clamp((head_size + step - 1) / step * step, least, most);
  return "head size " + std::to_string(head_size) + " is none of 16, 24, ..., 256; the nearest is " +
         std::to_string(nearest);
}

}  // namespace maestro
