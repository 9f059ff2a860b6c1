// SPDX-License-Identifier: Apache-2.0
// Blocks of device memory that are kept for reuse, by rounded size. Pure: addresses are only compared.
//
// BC-1 (balance): used + cached == reserved bytes, in rounded sizes.
// BC-2 (exact size): a block is handed out for its own rounded size only, the block that was released last first.
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
  static constexpr std::size_t small_step = 512;                   ///< blocks below large_step are multiples of it
  static constexpr std::size_t large_step = std::size_t{2} << 20;  ///< others of this: a page of device memory

  [[nodiscard]] static std::size_t rounded(std::size_t bytes);

  /// A cached block for so many bytes, or null.
  [[nodiscard]] std::byte* take(std::size_t bytes);
  /// The caller made `block` anew, of rounded(bytes), because take() gave none.
  void add(std::size_t bytes);
  void release(std::byte* block, std::size_t bytes);
  /// All cached blocks, which the caller gives back to the system.
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
