// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/arena.hpp"

#include <algorithm>
#include <cassert>
#include <functional>
#include <utility>

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
  std::byte* const block = best->begin;
  Chunk& chunk = chunks_[best->chunk];
  best->begin += wanted;
  best->bytes -= wanted;
  if (best->bytes == 0) free_.erase(best);
  used_ += wanted;
  peak_ = std::max(peak_, used_);
  chunk.reached = std::max(chunk.reached, static_cast<std::size_t>(block + wanted - chunk.memory.data()));
  return block;
}

std::size_t Arena::chunk_of(const std::byte* block) const {
  const auto has = [&](const Chunk& chunk) {
    return std::less_equal()(static_cast<const std::byte*>(chunk.memory.data()), block) &&
           std::less()(block, static_cast<const std::byte*>(chunk.memory.data() + chunk.memory.size()));
  };
  return static_cast<std::size_t>(std::ranges::find_if(chunks_, has) - chunks_.begin());
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
  const std::size_t chunk = chunk_of(block);
  assert(chunk < chunks_.size());
  const auto before = [](const Free& entry, const std::pair<std::size_t, const std::byte*>& at) {
    return std::pair<std::size_t, const std::byte*>(entry.chunk, entry.begin) < at;
  };
  const auto next = std::lower_bound(free_.begin(), free_.end(), std::pair(chunk, block), before);
  const auto previous = next == free_.begin() ? free_.end() : next - 1;
  const bool joins_next = next != free_.end() && next->chunk == chunk && block + size == next->begin;
  const bool joins_previous =
      previous != free_.end() && previous->chunk == chunk && previous->begin + previous->bytes == block;
  if (joins_previous && joins_next) {
    previous->bytes += size + next->bytes;
    free_.erase(next);
  } else if (joins_previous) {
    previous->bytes += size;
  } else if (joins_next) {
    next->begin = block;
    next->bytes += size;
  } else {
    free_.insert(next, Free{chunk, block, size});
  }
}

void Arena::grow(std::size_t bytes) {
  const std::size_t size = std::max(bytes, chunk_bytes_);
  const SpaceMemory& chunk = chunks_.emplace_back(Chunk{{*space_, size}}).memory;
  mapped_ += chunk.size();
  free_.push_back({chunks_.size() - 1, chunk.data(), chunk.size()});
}

}  // namespace maestro
