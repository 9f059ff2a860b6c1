// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/arena.hpp"

#include <algorithm>
#include <cassert>

namespace maestro {

std::byte* Arena::allocate(std::size_t bytes) {
  const std::size_t wanted = rounded(bytes);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->bytes >= wanted && (best == free_.end() || it->bytes < best->bytes)) best = it;
  }
  if (best == free_.end()) {
    grow(wanted);
    return allocate(bytes);
  }
  std::byte* block = best->begin;
  best->begin += wanted;
  best->bytes -= wanted;
  if (best->bytes == 0) free_.erase(best);
  used_ += wanted;
  peak_ = std::max(peak_, used_);
  reach(block, block + wanted);
  return block;
}

/// A block may be in two chunks that follow each other.
void Arena::reach(const std::byte* begin, const std::byte* end) {
  for (Chunk& chunk : chunks_) {
    const std::byte* const first = chunk.memory.data();
    const std::byte* const last = first + chunk.memory.size();
    if (end <= first || begin >= last) continue;
    chunk.reached = std::max(chunk.reached, static_cast<std::size_t>(std::min(end, last) - first));
  }
}

std::size_t Arena::held_bytes() const {
  if (!space_->host()) return mapped_;
  std::size_t sum = 0;
  for (const Chunk& chunk : chunks_) sum += chunk.reached;
  return sum;
}

void Arena::release(std::byte* block, std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  assert(used_ >= size);
  used_ -= size;
  auto next = std::lower_bound(free_.begin(), free_.end(), block,
                               [](const Free& entry, const std::byte* at) { return entry.begin < at; });
  // Chunks are separate mappings: two adjacent chunks may merge, which is harmless while both live (AR-2).
  const bool joins_next = next != free_.end() && block + size == next->begin;
  const bool joins_previous = next != free_.begin() && (next - 1)->begin + (next - 1)->bytes == block;
  if (joins_previous && joins_next) {
    (next - 1)->bytes += size + next->bytes;
    free_.erase(next);
  } else if (joins_previous) {
    (next - 1)->bytes += size;
  } else if (joins_next) {
    next->begin = block;
    next->bytes += size;
  } else {
    free_.insert(next, Free{block, size});
  }
}

void Arena::grow(std::size_t bytes) {
  const std::size_t size = std::max(bytes, chunk_bytes_);
  const SpaceMemory& chunk = chunks_.emplace_back(Chunk{{*space_, size}}).memory;
  mapped_ += chunk.size();
  const Free fresh{chunk.data(), chunk.size()};
  auto at = std::lower_bound(free_.begin(), free_.end(), fresh.begin,
                             [](const Free& entry, const std::byte* where) { return entry.begin < where; });
  free_.insert(at, fresh);
}

}  // namespace maestro
