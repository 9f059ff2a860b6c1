// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/dry_space.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t first_mapping = std::size_t{64} << 20;
constexpr std::size_t largest_mapping = std::size_t{64} << 30;

std::size_t in_pages(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + page_bytes - 1) / page_bytes) * page_bytes;
}

}  // namespace

DrySpace::~DrySpace() {
  for (const Mapping& mapping : mappings_) munmap(mapping.begin, mapping.bytes);
}

void DrySpace::map(std::size_t bytes) {
  const std::size_t next = mappings_.empty() ? first_mapping : std::min(2 * mappings_.back().bytes, largest_mapping);
  for (const std::size_t size : {std::max(bytes, next), bytes}) {
    void* const begin = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) continue;
    mappings_.push_back({static_cast<std::byte*>(begin), size});
    taken_ = 0;
    return;
  }
  throw JobError("cannot map " + std::to_string(bytes) + " bytes for a pass of which nothing is computed",
                 ErrorCode::unavailable);
}

std::byte* DrySpace::allocate(std::size_t bytes) {
  const std::size_t size = in_pages(bytes);
  const std::scoped_lock lock(mutex_);
  std::byte* block = nullptr;
  if (const auto known = free_.find(size); known != free_.end() && !known->second.empty()) {
    block = known->second.back();
    known->second.pop_back();
  } else {
    if (mappings_.empty() || mappings_.back().bytes - taken_ < size) map(size);
    block = mappings_.back().begin + taken_;
    taken_ += size;
  }
  held_ += bytes;
  return block;
}

void DrySpace::release(std::byte* block, std::size_t bytes) noexcept {
  const std::size_t size = in_pages(bytes);
  madvise(block, size, MADV_DONTNEED);  // its pages are zero again
  const std::scoped_lock lock(mutex_);
  free_[size].push_back(block);
  held_ -= bytes;
}

std::size_t DrySpace::held() const {
  const std::scoped_lock lock(mutex_);
  return held_;
}

void DrySpace::read(std::byte* host_to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (host_) {
    std::memcpy(host_to, from, bytes);
  } else {
    std::memset(host_to, 0, bytes);
  }
}

void DrySpace::write(std::byte* to, const std::byte* host_from, std::size_t bytes) {
  if (host_ && bytes > 0) std::memcpy(to, host_from, bytes);
}

void DrySpace::zero(std::byte* to, std::size_t bytes) {
  if (host_ && bytes > 0) std::memset(to, 0, bytes);
}

}  // namespace maestro
