// SPDX-License-Identifier: Apache-2.0
// Host memory that is mapped without being there: for passes of which nothing is computed. A page that is written is
// there from then on.
#pragma once

#include <atomic>

#include "runtime/core/memory_space.hpp"

namespace maestro {

/// Thread-safe.
class DrySpace final : public MemorySpace {
 public:
  /// With `host` false sections use it as the memory of a device that has its own.
  explicit DrySpace(bool host = true) : host_(host) {}
  [[nodiscard]] bool host() const override { return host_; }
  [[nodiscard]] bool holds_values() const override { return false; }
  /// Throws JobError(unavailable) where the address space is too small.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* block, std::size_t bytes) noexcept override;
  void read(std::byte* host_to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, const std::byte* host_from, std::size_t bytes) override;
  void zero(std::byte* to, std::size_t bytes) override;
  /// Returns the bytes of all blocks.
  [[nodiscard]] std::size_t held() const { return held_; }

 private:
  bool host_;
  std::atomic<std::size_t> held_ = 0;
};

}  // namespace maestro
