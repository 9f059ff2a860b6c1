// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/reduction/wire_slots.hpp"

#include <algorithm>

namespace maestro {

WireSlots::WireSlots(WireFormats formats, std::size_t elements, std::size_t learned, std::size_t members)
    : formats_(formats), elements_(elements), learned_(learned), members_(members), offsets_{0} {
  constexpr std::size_t line = 64;  // bytes: slots share no cache line
  for (std::size_t shard = 0; shard < members; ++shard) {
    const std::size_t sum = encodes_sums() ? codec(shard, true).bytes() : 0;
    const std::size_t bytes = std::max(codec(shard, false).bytes(), sum);
    offsets_.push_back(offsets_.back() + (bytes + line - 1) / line * line);
  }
  memory_ = AlignedMemory(offsets_.back());
}

ShardCodec WireSlots::codec(std::size_t shard, bool sum) const {
  const ShardRange held = range(shard);
  const std::size_t encoded = std::clamp(learned_, held.first, held.first + held.count) - held.first;
  return {sum ? formats_.sums : formats_.parts, encoded, held.count - encoded};
}

WireError WireSlots::encode_parts(std::span<const float> gradients, std::size_t kept) {
  WireError error;
  for (std::size_t shard = 0; shard < members_; ++shard) {
    if (shard == kept) continue;
    const ShardRange part = range(shard);
    error.add(codec(shard, false).encode(gradients.subspan(part.first, part.count), slot(shard)));
  }
  return error;
}

WireError WireSlots::encode_sum(std::span<float> sum, std::size_t shard) {
  const ShardCodec codec = this->codec(shard, true);
  const WireError error = codec.encode(sum, slot(shard));
  codec.decode(slot(shard), 0, sum);
  return error;
}

}  // namespace maestro
