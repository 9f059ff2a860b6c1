#include "runtime/ops/cuda/flash_attention.hpp"

namespace maestro::cuda {

std::string flash_refusal(const AttentionShape& shape) {
  constexpr std::int64_t least = 16;
  constexpr std::int64_t most = 256;
  constexpr std::int64_t step = 8;  // rows of a head then begin at multiples of 16 bytes
  const std::int64_t size = shape.head_size;
  if (size >= least && size <= most && size % step == 0) return {};
  const std::int64_t rounded = (size + step - 1) / step * step;
  const std::int64_t nearest = rounded < least ? least : rounded > most ? most : rounded;
  return "head size " + std::to_string(size) + " is none of 16, 24, ..., 256; the nearest is " +
         std::to_string(nearest);
}

}  // namespace maestro::cuda
