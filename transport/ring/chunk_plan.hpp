// SPDX-License-Identifier: Apache-2.0
// The partition of a piece's payload into RMA writes.
//
// CP-1 (cover): the chunks cover [0, bytes) exactly, in order, without overlap.
// CP-2 (no empty chunk): no chunk is empty: a 0-byte write wedges libfabric's shm provider. A piece of 0 bytes consists
//       only of its header.
// CP-3 (full chunks): every chunk but the last has chunk_bytes bytes, and none has more.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace maestro {

struct Chunk {
  std::size_t offset = 0;  ///< bytes from the start of the payload
  std::size_t bytes = 0;   ///< at least 1
  friend constexpr bool operator==(const Chunk&, const Chunk&) = default;
};

/// Returns the number of writes for `bytes` of payload. `chunk_bytes` is the largest single write; 0 means no limit.
[[nodiscard]] constexpr std::size_t chunk_count(std::size_t bytes, std::size_t chunk_bytes) {
  if (bytes == 0) return 0;
  if (chunk_bytes == 0) return 1;
  return bytes / chunk_bytes + (bytes % chunk_bytes != 0 ? 1 : 0);
}

/// Returns the number of writes of a piece: its header, then its payload. A CompletionCounter expects this count.
[[nodiscard]] constexpr std::size_t writes_per_piece(std::size_t bytes, std::size_t chunk_bytes) {
  return 1 + chunk_count(bytes, chunk_bytes);
}

/// Computes chunks on request; stores none.
class ChunkPlan {
 public:
  constexpr ChunkPlan(std::size_t bytes, std::size_t chunk_bytes)
      : bytes_(bytes), chunk_bytes_(chunk_bytes == 0 ? bytes : chunk_bytes) {}

  [[nodiscard]] constexpr std::size_t size() const { return chunk_count(bytes_, chunk_bytes_); }
  [[nodiscard]] constexpr Chunk operator[](std::size_t index) const {
    assert(index < size());
    const std::size_t offset = index * chunk_bytes_;
    return {offset, std::min(chunk_bytes_, bytes_ - offset)};
  }

  class Iterator {
   public:
    constexpr Iterator(const ChunkPlan& plan, std::size_t index) : plan_(&plan), index_(index) {}
    constexpr Chunk operator*() const { return (*plan_)[index_]; }
    constexpr Iterator& operator++() {
      ++index_;
      return *this;
    }
    friend constexpr bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const ChunkPlan* plan_;
    std::size_t index_;
  };
  [[nodiscard]] constexpr Iterator begin() const { return {*this, 0}; }
  [[nodiscard]] constexpr Iterator end() const { return {*this, size()}; }

 private:
  std::size_t bytes_;
  std::size_t chunk_bytes_;
};

}  // namespace maestro
