// SPDX-License-Identifier: Apache-2.0
// Where the memory of the fake's devices lies: one sparse file that has no name, so that other processes can map
// parts of it (host_cuda_ipc.cpp).
//
// DA-1: a block that was given back is given out again as late as possible, and its pages go back to the system:
//       so what still uses it is found out.
// DA-2: AddressSanitizer lets nobody touch a block that was given back.
#pragma once

#include <cstddef>
#include <map>

namespace maestro::fake_cuda {

/// Not thread-safe. A process that forks leaves it to one of both.
class DeviceArena {
 public:
  static constexpr std::size_t alignment = 256;  ///< of blocks: as cudaMalloc's

  /// Room for so many bytes; what is not given out takes no memory. Throws std::system_error.
  explicit DeviceArena(std::size_t bytes);
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  /// A block of a multiple of `alignment` bytes, or null where there is no room.
  [[nodiscard]] std::byte* take(std::size_t bytes);
  /// What take(bytes) gave.
  void give_back(std::byte* block, std::size_t bytes);
  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] std::size_t offset_of(const void* memory) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(memory) - base_);
  }

 private:
  using Gaps = std::map<std::size_t, std::size_t>;  // offset of each, and where it ends
  [[nodiscard]] std::byte* take_of(Gaps::iterator gap, std::size_t begin, std::size_t bytes);

  std::size_t size_;
  int file_ = -1;
  std::byte* base_ = nullptr;
  Gaps gaps_;
  std::size_t next_ = 0;  // where the search for a gap begins (DA-1)
  std::size_t used_ = 0;  // no block has ever ended behind it
};

}  // namespace maestro::fake_cuda
