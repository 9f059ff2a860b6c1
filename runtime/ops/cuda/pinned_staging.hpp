// SPDX-License-Identifier: Apache-2.0
// Pinned memory between host and device: figures that kernels write for the host to read later, and small lists
// that the host writes for the device to read later.
//
// PS-1 (figures held): a figure's memory is released with the figure's last holder. A holder releases a figure whose
//       work is not complete only when the run has failed.
// PS-2 (lists read): a list's memory is used again only when the stream has read it; no thread waits for that.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <span>

#include "runtime/core/memory_space.hpp"

namespace maestro::cuda {

/// Serves a single stream. put() runs on the device's thread; any thread may release figures.
class PinnedStaging {
 public:
  /// `pinned`: pinned memory that devices see under the same addresses; outlives every figure.
  PinnedStaging(cudaStream_t stream, MemorySpace& pinned) : stream_(stream), pinned_(&pinned) {}
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;

  /// Returns zeros in pinned memory. T is trivial.
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
