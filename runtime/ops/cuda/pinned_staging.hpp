// SPDX-License-Identifier: Apache-2.0
// Pinned memory between host and device: figures that kernels write for the host to read later, and small lists
// that the host writes for the device to read later.
//
// PS-1: a figure's memory is given back when the last holder of the figure lets go of it; whoever drops a figure before
//       its work is complete has given up on the run.
// PS-2: a list's memory is used again only when the stream has read it; nothing waits for that.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <span>

#include "runtime/core/memory_space.hpp"

namespace maestro::cuda {

/// Of one stream. put() on the device's thread; figures may be dropped on any.
class PinnedStaging {
 public:
  /// `pinned`: pinned memory that devices see under the same addresses; it outlives every figure.
  PinnedStaging(cudaStream_t stream, MemorySpace& pinned) : stream_(stream), pinned_(&pinned) {}
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;

  /// Zeros in pinned memory. T is trivial.
  template <class T>
  [[nodiscard]] std::shared_ptr<T> figure() const {
    std::byte* const block = pinned_->allocate(sizeof(T));
    auto release = [pinned = pinned_](T* value) { pinned->release(reinterpret_cast<std::byte*>(value), sizeof(T)); };
    return {new (block) T(), std::move(release)};
  }
  /// Copies `values` to `to` in device memory in the order of the stream; `values` may change at once. Throws
  /// DeviceError.
  void put(std::span<const std::byte> values, std::byte* to);

 private:
  struct Sent {
    std::byte* block = nullptr;
    std::size_t bytes = 0;
    cudaEvent_t read = nullptr;
  };
  [[nodiscard]] Sent take(std::size_t bytes);

  cudaStream_t stream_;
  MemorySpace* pinned_;
  std::deque<Sent> sent_;  // in the order of the stream
};

}  // namespace maestro::cuda
