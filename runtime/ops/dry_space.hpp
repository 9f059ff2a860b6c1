// SPDX-License-Identifier: Apache-2.0
// Host memory that is mapped but not resident, for passes that compute nothing. A page that the CPU writes stays
// resident until its block is released. Blocks are parts of large mappings, since a dry pass has hundreds of them.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/core/memory_space.hpp"

namespace maestro {

/// Thread-safe.
class DrySpace final : public MemorySpace {
 public:
  /// With `host` false, sections treat it as the memory of a device with separate memory: writes to it are dropped.
  explicit DrySpace(bool host = true) : host_(host) {}
  ~DrySpace() override;
  DrySpace(const DrySpace&) = delete;
  DrySpace& operator=(const DrySpace&) = delete;
  [[nodiscard]] bool host() const override { return host_; }
  [[nodiscard]] bool holds_values() const override { return false; }
  /// Throws JobError(unavailable) if the address space is too small.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* block, std::size_t bytes) noexcept override;
  void read(std::byte* host_to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, const std::byte* host_from, std::size_t bytes) override;
  void zero(std::byte* to, std::size_t bytes) override;
  /// Returns the bytes of all blocks.
  [[nodiscard]] std::size_t held() const;

 private:
  struct Mapping {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
  };
  /// Maps at least `bytes` more: twice as many as before if the system has them.
  void map(std::size_t bytes);

  bool host_;
  mutable std::mutex mutex_;
  std::vector<Mapping> mappings_;
  std::size_t taken_ = 0;                                // used bytes of the last mapping
  std::map<std::size_t, std::vector<std::byte*>> free_;  // released blocks, by their number of pages
  std::size_t held_ = 0;
};

}  // namespace maestro
