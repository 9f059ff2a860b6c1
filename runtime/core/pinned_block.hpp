// SPDX-License-Identifier: Apache-2.0
// Host memory that is pinned for a device's transfers.
#pragma once

#include <span>
#include <utility>

#include "runtime/core/memory_space.hpp"

namespace maestro {

/// Host memory that is pinned during the object's lifetime; move-only. The memory and the space outlive it.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  PinnedBlock(MemorySpace& space, std::span<std::byte> host) : space_(&space), begin_(host.data()) {
    space.pin(host.data(), host.size());
  }
  ~PinnedBlock() { reset(); }
  PinnedBlock(PinnedBlock&& other) noexcept : space_(std::exchange(other.space_, nullptr)), begin_(other.begin_) {}
  PinnedBlock& operator=(PinnedBlock&& other) noexcept {
    if (this != &other) {
      reset();
      space_ = std::exchange(other.space_, nullptr);
      begin_ = other.begin_;
    }
    return *this;
  }
  void reset() {
    if (space_ != nullptr) space_->unpin(begin_);
    space_ = nullptr;
  }

 private:
  MemorySpace* space_ = nullptr;
  std::byte* begin_ = nullptr;
};

}  // namespace maestro
