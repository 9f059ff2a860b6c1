// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/workspace.hpp"

#include <algorithm>

#include "runtime/ops/cuda/device_error.hpp"

namespace maestro::cuda {

namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t smallest_chunk = std::size_t{1} << 20;

}  // namespace

std::byte* Workspace::take(std::size_t bytes) {
  bytes = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  while (chunk_ < chunks_.size() && used_ + bytes > chunks_[chunk_].bytes) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    // Doubles each time, so that there are few chunks.
    const std::size_t wanted = std::max({bytes, smallest_chunk, reserved_bytes()});
    void* memory = nullptr;
    check(cudaMalloc(&memory, wanted), "cudaMalloc of operator scratch");
    chunks_.push_back({std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(memory)), wanted});
  }
  std::byte* taken = chunks_[chunk_].memory.get() + used_;
  used_ += bytes;
  return taken;
}

std::size_t Workspace::reserved_bytes() const {
  std::size_t sum = 0;
  for (const Chunk& chunk : chunks_) sum += chunk.bytes;
  return sum;
}

}  // namespace maestro::cuda
