// SPDX-License-Identifier: Apache-2.0
// A block of page-aligned host memory, zeroed on first touch by the system; owned, move-only.
#pragma once

#include <cstddef>
#include <utility>

namespace maestro {

class AlignedMemory {
 public:
  AlignedMemory() = default;
  /// Maps `bytes` rounded up to pages. Throws JobError(unavailable) if the system refuses.
  explicit AlignedMemory(std::size_t bytes);
  ~AlignedMemory() { reset(); }
  AlignedMemory(AlignedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedMemory& operator=(AlignedMemory&& other) noexcept {
    if (this != &other) {
      reset();
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  void reset();

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace maestro
