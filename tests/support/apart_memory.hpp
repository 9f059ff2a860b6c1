// SPDX-License-Identifier: Apache-2.0
// Memory that a test uses as a device's: the product must not access it from the CPU; the test does.
#pragma once

#include <cstring>
#include <map>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/memory_space.hpp"

namespace maestro::testing {

class ApartMemory final : public MemorySpace {
 public:
  [[nodiscard]] bool host() const override { return false; }
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override {
    AlignedMemory block(bytes);
    std::byte* const begin = block.data();
    blocks_[begin] = std::move(block);
    return begin;
  }
  void release(std::byte* block, std::size_t /*bytes*/) noexcept override { blocks_.erase(block); }
  void read(std::byte* host_to, const std::byte* from, std::size_t bytes) override { copy(host_to, from, bytes); }
  void write(std::byte* to, const std::byte* host_from, std::size_t bytes) override { copy(to, host_from, bytes); }
  void zero(std::byte* to, std::size_t bytes) override {
    if (bytes > 0) std::memset(to, 0, bytes);
  }
  void pin(std::byte* host_begin, std::size_t bytes) override { pinned_[host_begin] = bytes; }
  void unpin(std::byte* host_begin) override { pinned_.erase(host_begin); }
  [[nodiscard]] std::size_t blocks() const { return blocks_.size(); }
  /// Returns the bytes of pinned host memory by first address.
  [[nodiscard]] const std::map<std::byte*, std::size_t>& pinned() const { return pinned_; }

 private:
  static void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  std::map<std::byte*, AlignedMemory> blocks_;
  std::map<std::byte*, std::size_t> pinned_;
};

}  // namespace maestro::testing
