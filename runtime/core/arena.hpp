// SPDX-License-Identifier: Apache-2.0
// Working memory of a micro-batch in flight: best-fit blocks inside memory that is mapped once and reused.
//
// AR-1 (accounting): used bytes + free bytes == mapped bytes.
// AR-2 (merged): neighbouring free blocks are merged, so releasing everything leaves a single block per chunk.
// AR-3 (no growth): after one micro-batch of a shape has needed no new mapping, later ones need none either. This is
//       usually the case from the second on; it finds chunks that the first added midway, places blocks differently,
//       and may need another chunk.
// AR-4 (by calls alone): the same calls take the same bytes, for any addresses of the chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "runtime/core/memory_space.hpp"
#include "runtime/core/tensor.hpp"

namespace maestro {

/// Not thread-safe: an arena belongs to a single device thread at a time.
class Arena {
 public:
  /// Uses memory of `space`, which outlives it. A released block may be allocated again at once: this is correct for
  /// work that runs in queue order.
  explicit Arena(std::size_t chunk_bytes = std::size_t{32} << 20, MemorySpace& space = host_memory())
      : chunk_bytes_(chunk_bytes), alignment_(space.host() ? 64 : 256), space_(&space) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns uninitialised memory, aligned to a cache line; on devices to 256 bytes, the best alignment for their
  /// matrix products.
  [[nodiscard]] std::byte* allocate(std::size_t bytes);
  void release(std::byte* block, std::size_t bytes);
  [[nodiscard]] Tensor allocate(Shape shape, DType dtype) {
    const Tensor sized(nullptr, dtype, shape);
    return {allocate(sized.bytes()), dtype, shape};
  }
  void release(const Tensor& tensor) { release(tensor.raw(), tensor.bytes()); }

  [[nodiscard]] MemorySpace& space() const { return *space_; }
  [[nodiscard]] std::size_t used_bytes() const { return used_; }
  [[nodiscard]] std::size_t peak_bytes() const { return peak_; }
  [[nodiscard]] std::size_t mapped_bytes() const { return mapped_; }
  /// Returns the bytes that the arena takes of its memory. On a host, which maps pages when they are written: chunks up
  /// to the end of the furthest block so far. On a device with separate memory: all chunks.
  [[nodiscard]] std::size_t held_bytes() const;

 private:
  struct Free {
    std::size_t chunk;
    std::byte* begin;
    std::size_t bytes;
  };
  struct Chunk {
    SpaceMemory memory;
    std::size_t reached = 0;  ///< bytes up to the end of the furthest block
  };
  void grow(std::size_t bytes);
  [[nodiscard]] std::size_t chunk_of(const std::byte* block) const;

  [[nodiscard]] std::size_t rounded(std::size_t bytes) const {
    return std::max(alignment_, (bytes + alignment_ - 1) / alignment_ * alignment_);
  }

  std::size_t chunk_bytes_;
  std::size_t alignment_;
  MemorySpace* space_;
  std::vector<Chunk> chunks_;
  std::vector<Free> free_;  // sorted by chunk and address
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
  std::size_t mapped_ = 0;
};

}  // namespace maestro
