// SPDX-License-Identifier: Apache-2.0
// The memory of an operator table's tensors: host memory, or separate memory of a device.
//
// The CPU never dereferences an address of a space whose host() is false. Addresses of two spaces never overlap.
//
// MS-2 (synchronous access): read(), write() and zero() are for set-up, checkpoints and tests: they are complete when
//       they return, and are not ordered with a device's queued work; the caller ensures that no such work touches the
//       memory. In steps, OperatorTable::upload(), download(), zero() and cast() do this in the order of the device's
//       work.
#pragma once

#include <cstddef>
#include <utility>

namespace maestro {

/// Thread-safe.
class MemorySpace {
 public:
  virtual ~MemorySpace() = default;
  /// Returns whether the CPU reads and writes it directly.
  [[nodiscard]] virtual bool host() const = 0;
  /// Returns at least `bytes`, zeroed, aligned to 256 bytes. Throws JobError(unavailable) that names the space and the
  /// size.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  /// Frees a block that allocate(bytes) returned.
  virtual void release(std::byte* block, std::size_t bytes) noexcept = 0;
  virtual void read(std::byte* host_to, const std::byte* from, std::size_t bytes) = 0;
  virtual void write(std::byte* to, const std::byte* host_from, std::size_t bytes) = 0;
  virtual void zero(std::byte* to, std::size_t bytes) = 0;
  /// Returns whether written values are kept; false if memory is only counted, and reads as zeros.
  [[nodiscard]] virtual bool holds_values() const { return true; }
  /// Returns whether operators on this space's tensors also work on blocks of `other`, in place.
  [[nodiscard]] virtual bool reaches(const MemorySpace& other) const { return &other == this; }
  /// Makes host memory fast for transfers to and from this space (pinned), until unpin() of its begin; does nothing
  /// without a gain, or if the system refuses.
  virtual void pin(std::byte* /*host_begin*/, std::size_t /*bytes*/) {}
  virtual void unpin(std::byte* /*host_begin*/) {}
};

/// Returns the CPU's memory, a single space for the program.
[[nodiscard]] MemorySpace& host_memory();

/// A zeroed block of a space; owned, move-only. The space outlives it.
class SpaceMemory {
 public:
  SpaceMemory() = default;
  SpaceMemory(MemorySpace& space, std::size_t bytes)
      : space_(&space), data_(bytes == 0 ? nullptr : space.allocate(bytes)), size_(bytes) {}
  ~SpaceMemory() { reset(); }
  SpaceMemory(SpaceMemory&& other) noexcept
      : space_(other.space_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  SpaceMemory& operator=(SpaceMemory&& other) noexcept {
    if (this != &other) {
      reset();
      space_ = other.space_;
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  void reset() {
    if (data_ != nullptr) space_->release(data_, size_);
    data_ = nullptr;
    size_ = 0;
  }

 private:
  MemorySpace* space_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace maestro
