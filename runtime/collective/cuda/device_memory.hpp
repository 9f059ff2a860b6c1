// SPDX-License-Identifier: Apache-2.0
// Device memory with an owner.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace maestro {

/// Memory on one device that grows and never shrinks. What it was before it grew stays until the end: work that is
/// queued may still use it, and to free it would wait for the device. Not thread-safe.
class DeviceMemory {
 public:
  /// At least `bytes` on the current device; contents are lost when it grows. The result of cudaMalloc.
  [[nodiscard]] cudaError_t reserve(std::size_t bytes) {
    if (bytes <= size_) return cudaSuccess;
    const std::size_t size = bytes > 2 * size_ ? bytes : 2 * size_;  // so that all that was adds up to no more
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
    // A device that has failed refuses to free; its context takes the memory along.
    void operator()(void* memory) const { static_cast<void>(cudaFree(memory)); }
  };
  std::vector<std::unique_ptr<void, Free>> blocks_;
  std::size_t size_ = 0;
};

}  // namespace maestro
