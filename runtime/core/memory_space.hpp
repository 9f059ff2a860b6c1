// SPDX-License-Identifier: Apache-2.0
// Where the tensors of an operator table lie: host memory, or of a device that has its own.
//
// MS-1: the addresses of two spaces never overlap; an address of a space that host() denies is not read or written by
//       the CPU.
// MS-2: read(), write() and zero() are for setting up, checkpoints and tests: they return when they are done and are
//       not ordered with work that a device still has to do; their caller knows that none touches the memory. In steps,
//       OperatorTable::upload(), download(), zero() and cast() do this in the order of the device's work.
#pragma once

#include <cstddef>
#include <utility>

namespace maestro {

/// Thread-safe.
class MemorySpace {
 public:
  virtual ~MemorySpace() = default;
  /// The CPU reads and writes it as its own.
  [[nodiscard]] virtual bool host() const = 0;
  /// At least `bytes`, zeroed, aligned to 256 bytes. Throws JobError(unavailable) that names the space and the size.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  /// What allocate(bytes) gave.
  virtual void release(std::byte* block, std::size_t bytes) noexcept = 0;
  virtual void read(std::byte* host_to, const std::byte* from, std::size_t bytes) = 0;
  virtual void write(std::byte* to, const std::byte* host_from, std::size_t bytes) = 0;
  virtual void zero(std::byte* to, std::size_t bytes) = 0;
  /// Whether operators on this space's tensors work as well on blocks of `other`, in place.
  [[nodiscard]] virtual bool reaches(const MemorySpace& other) const { return &other == this; }
  /// Makes host memory fast for transfers to and from this space (pinned), until unpin() of its begin; does
  /// nothing where there is nothing to gain, or where the system refuses.
  virtual void pin(std::byte* /*host_begin*/, std::size_t /*bytes*/) {}
  virtual void unpin(std::byte* /*host_begin*/) {}
};

/// The CPU's own; one for the program.
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
