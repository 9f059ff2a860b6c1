// SPDX-License-Identifier: Apache-2.0
// Blocks of device memory that are kept for reuse, by rounded size. Pure: addresses are only compared.
//
// BC-1 (balance): used + cached == reserved bytes, in rounded sizes.
// BC-2 (exact size): a block is handed out only for its rounded size, the block that was released last first.
// BC-3 (rounding): rounding adds less than `small_step` to a block below `large_step`, and less than `large_step` to
//       others.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace maestro {

/// Not thread-safe.
class BlockCache {
 public:
  static constexpr std::size_t small_step = 512;                   ///< divisor of block sizes below large_step
  static constexpr std::size_t large_step = std::size_t{2} << 20;  ///< divisor of larger sizes: a device page

  [[nodiscard]] static std::size_t rounded(std::size_t bytes);

  /// Returns a cached block of `bytes`, or null.
  [[nodiscard]] std::byte* take(std::size_t bytes);
  /// Counts a new block of rounded(bytes), which the caller made because take() returned null.
  void add(std::size_t bytes);
  void release(std::byte* block, std::size_t bytes);
  /// Returns all cached blocks, for the caller to release to the system.
  [[nodiscard]] std::vector<std::byte*> drain();

  [[nodiscard]] std::size_t used_bytes() const { return used_; }
  [[nodiscard]] std::size_t peak_bytes() const { return peak_; }
  [[nodiscard]] std::size_t reserved_bytes() const { return used_ + cached_; }

 private:
  void count(std::size_t size);

  std::map<std::size_t, std::vector<std::byte*>> free_;  // by rounded size
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
  std::size_t cached_ = 0;
};

}  // namespace maestro
