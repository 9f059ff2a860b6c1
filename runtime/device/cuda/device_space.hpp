// SPDX-License-Identifier: Apache-2.0
// Memory of a device, and the host's pinned memory, as memory spaces.
//
// DS-1 (stream-ordered reuse): a block is given out again only after the work that was queued on the device's stream
//       before its release.
// DS-2 (no events in captures): nothing is recorded on the device's stream while it is being captured: blocks that are
//       released then are ordered at the next call.
// DS-1 is the only order: memory that copies outside that stream (Device::move) still read or write must not be
//       released.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "runtime/core/memory_space.hpp"
#include "runtime/device/block_cache.hpp"
#include "runtime/device/cuda/stream.hpp"
#include "runtime/device/stream_order.hpp"

namespace maestro::cuda {

struct SpaceFigures {
  std::size_t used_bytes = 0;
  std::size_t peak_bytes = 0;
  std::size_t reserved_bytes = 0;  ///< taken from the system
};

/// A device's operator stream, and the lock for recording on it: a thread that captures it holds the lock.
struct WorkStream {
  explicit WorkStream(Stream made) : stream(std::move(made)) {}
  Stream stream;
  std::recursive_mutex capture;
  [[nodiscard]] bool capturing() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream.get(), &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
  }
};

/// Blocks are cached by size. allocate(), read(), write() and zero() wait for the device; release() does not.
class DeviceSpace final : public MemorySpace {
 public:
  /// `work` and the device's context outlive the space, which outlives its blocks.
  DeviceSpace(int device, WorkStream& work, std::shared_ptr<EventPool> events);
  ~DeviceSpace() override;
  DeviceSpace(const DeviceSpace&) = delete;
  DeviceSpace& operator=(const DeviceSpace&) = delete;

  [[nodiscard]] bool host() const override { return false; }
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* block, std::size_t bytes) noexcept override;
  void read(std::byte* host_to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, const std::byte* host_from, std::size_t bytes) override;
  void zero(std::byte* to, std::size_t bytes) override;
  /// Returns whether `other` is a space on the same device.
  [[nodiscard]] bool reaches(const MemorySpace& other) const override {
    const auto* device = dynamic_cast<const DeviceSpace*>(&other);
    return device != nullptr && device->device_ == device_;
  }
  void pin(std::byte* host_begin, std::size_t bytes) override;
  void unpin(std::byte* host_begin) override;
  /// Returns whether allocate() returned `block` and release() has not received it yet.
  [[nodiscard]] bool holds(const std::byte* block) const;
  [[nodiscard]] SpaceFigures figures() const;

 private:
  static constexpr StreamNumber work_number = 1;
  static constexpr StreamNumber setup_number = 2;

  [[nodiscard]] std::byte* make(std::size_t bytes);
  void give_back_cached();
  void order_parked();
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
  void settle(cudaError_t queued, const char* what);

  int device_;
  WorkStream& work_;
  std::shared_ptr<EventPool> events_;
  mutable std::mutex mutex_;
  Stream setup_;
  BlockCache cache_;
  std::unordered_set<const std::byte*> allocated_;
  StreamOrder<PooledEvent> order_;
  std::vector<std::byte*> parked_;  // released while captured (DS-2)
  std::set<std::byte*> pinned_;     // by pin()
};

/// Pinned host memory that devices read and write: like any host memory, blocks cached by size. A released block must
/// no longer be in use by a device. The runtime allocates it for `device`; every device reaches it.
class PinnedSpace final : public MemorySpace {
 public:
  explicit PinnedSpace(int device = 0) : device_(device) {}
  ~PinnedSpace() override;
  PinnedSpace(const PinnedSpace&) = delete;
  PinnedSpace& operator=(const PinnedSpace&) = delete;

  [[nodiscard]] bool host() const override { return true; }
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* block, std::size_t bytes) noexcept override;
  void read(std::byte* host_to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, const std::byte* host_from, std::size_t bytes) override;
  void zero(std::byte* to, std::size_t bytes) override;
  [[nodiscard]] SpaceFigures figures() const;

 private:
  int device_;
  mutable std::mutex mutex_;
  BlockCache cache_;
};

}  // namespace maestro::cuda
