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
  return block;
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
  chunks_.emplace_back(*space_, size);
  mapped_ += chunks_.back().size();
  const Free fresh{chunks_.back().data(), chunks_.back().size()};
  auto at = std::lower_bound(free_.begin(), free_.end(), fresh.begin,
                             [](const Free& entry, const std::byte* where) { return entry.begin < where; });
  free_.insert(at, fresh);
}

}  // namespace maestro
