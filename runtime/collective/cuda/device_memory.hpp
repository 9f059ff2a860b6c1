// Device memory with an owner.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

namespace maestro {

/// Memory on one device that grows and never shrinks. Not thread-safe.
class DeviceMemory {
 public:
  /// At least `bytes` on the current device; contents are lost when it grows, which waits for the device. The result of
  /// cudaMalloc.
  [[nodiscard]] cudaError_t reserve(std::size_t bytes) {
    if (bytes <= size_) return cudaSuccess;
    memory_.reset();
    size_ = 0;
    void* memory = nullptr;
    const cudaError_t result = cudaMalloc(&memory, bytes);
    if (result != cudaSuccess) return result;
    memory_.reset(memory);
    size_ = bytes;
    return cudaSuccess;
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }

 private:
  struct Free {
    // A device that has failed refuses to free; its context takes the memory along.
    void operator()(void* memory) const { static_cast<void>(cudaFree(memory)); }
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace maestro
