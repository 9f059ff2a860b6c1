// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/block_cache.hpp"

#include <algorithm>

namespace maestro {

std::size_t BlockCache::rounded(std::size_t bytes) {
  const std::size_t step = bytes < large_step ? small_step : large_step;
  return std::max(step, (bytes + step - 1) / step * step);
}

void BlockCache::count(std::size_t size) {
  used_ += size;
  peak_ = std::max(peak_, used_);
}

std::byte* BlockCache::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  const auto found = free_.find(size);
  if (found == free_.end() || found->second.empty()) return nullptr;
  std::byte* block = found->second.back();
  found->second.pop_back();
  cached_ -= size;
  count(size);
  return block;
}

void BlockCache::add(std::size_t bytes) {
  count(rounded(bytes));
}

void BlockCache::release(std::byte* block, std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  free_[size].push_back(block);
  used_ -= size;
  cached_ += size;
}

std::vector<std::byte*> BlockCache::drain() {
  std::vector<std::byte*> blocks;
  for (auto& [size, of_size] : free_) blocks.insert(blocks.end(), of_size.begin(), of_size.end());
  free_.clear();
  cached_ = 0;
  return blocks;
}

}  // namespace maestro
