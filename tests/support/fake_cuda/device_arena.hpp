// SPDX-License-Identifier: Apache-2.0
// Memory of the fake devices: a sparse file without a name, so that other processes can map parts of it
// (host_cuda_ipc.cpp).
//
// DA-1 (late reuse): a freed block is reused only after the rest of a lap was allocated, and its pages return to the
//       system, so that a use after free is detected. AddressSanitizer keeps an eighth of all memory ever used; laps
//       shorter than the arena bound that part.
// DA-2 (poison): AddressSanitizer lets no code touch a freed block.
#pragma once

#include <cstddef>
#include <limits>
#include <map>

namespace maestro::fake_cuda {

/// Not thread-safe. After a fork only one process may use it.
class DeviceArena {
 public:
  static constexpr std::size_t alignment = 256;  ///< alignment of blocks, as with cudaMalloc

  /// Reserves `bytes` bytes; only blocks in use take memory. A new lap begins after the first `lap` bytes. Throws
  /// std::system_error.
  explicit DeviceArena(std::size_t bytes, std::size_t lap = std::numeric_limits<std::size_t>::max());
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  /// Returns a block whose size is a multiple of `alignment`, or null if there is not enough room.
  [[nodiscard]] std::byte* take(std::size_t bytes);
  /// Frees a block of take(bytes).
  void give_back(std::byte* block, std::size_t bytes);
  /// Sets bytes of a block to zero. Complete pages return to the system, which supplies zeros when they are next used.
  void clear(std::byte* memory, std::size_t bytes);
  [[nodiscard]] bool contains(const void* memory) const { return memory >= base_ && memory < base_ + size_; }
  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] std::size_t offset_of(const void* memory) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(memory) - base_);
  }

 private:
  using Gaps = std::map<std::size_t, std::size_t>;  // end of each gap by its offset
  [[nodiscard]] std::byte* take_of(Gaps::iterator gap, std::size_t begin, std::size_t bytes);

  std::size_t size_;
  std::size_t lap_;
  int file_ = -1;
  std::byte* base_ = nullptr;
  Gaps gaps_;
  std::size_t next_ = 0;  // start of the search for a gap (DA-1)
  std::size_t used_ = 0;  // largest end of any block so far
};

}  // namespace maestro::fake_cuda
