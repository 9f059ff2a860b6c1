// SPDX-License-Identifier: Apache-2.0
// Device memory that an object owns.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace maestro {

/// Memory on a device that grows and never shrinks. Blocks from before it grew stay until the end: queued work may
/// still use them, and freeing them would wait for the device. Not thread-safe.
class DeviceMemory {
 public:
  /// Makes at least `bytes` available on the current device; contents are lost when it grows. Returns the result of
  /// cudaMalloc.
  [[nodiscard]] cudaError_t reserve(std::size_t bytes) {
    if (bytes <= size_) return cudaSuccess;
    const std::size_t size = bytes > 2 * size_ ? bytes : 2 * size_;  // so that all earlier blocks add up to no more
    void* memory = nullptr;
    const cudaError_t result = cudaMalloc(&memory, size);
    if (result != cudaSuccess) return result;
    blocks_.emplace_back(memory);
    size_ = size;
    return cudaSuccess;
  }
  [[nodiscard]] std::byte* data() const {
    return blocks_.empty() ? nullptr : static_cast<std::byte*>(blocks_.back().get());
  }

 private:
  struct Free {
    // A device that has failed refuses to free; the memory ends with its context.
    void operator()(void* memory) const { static_cast<void>(cudaFree(memory)); }
  };
  std::vector<std::unique_ptr<void, Free>> blocks_;
  std::size_t size_ = 0;
};

}  // namespace maestro
