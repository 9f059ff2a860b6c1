// SPDX-License-Identifier: Apache-2.0
// Reference-counted blocks that cross actor boundaries: a section's output is a buffer of a pool, its consumers in the
// same process share it without a copy, and the last reference returns it to the pool.
//
// BP-1 (accounting): free + outstanding == capacity.
// BP-2 (exclusive): a block is never acquired while a reference to it lives.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/memory_space.hpp"

namespace maestro {

class BufferPool;

/// A shared block. Copies are references; thread-safe like shared_ptr. Shared because producer, consumers and the
/// transport finish with it in an unpredictable order.
class Buffer {
 public:
  Buffer() = default;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Returns the block's offset in its pool's memory, for remote writes.
  [[nodiscard]] std::size_t pool_offset() const { return pool_offset_; }
  /// Returns the memory space of the block.
  [[nodiscard]] const MemorySpace& space() const { return *space_; }
  explicit operator bool() const { return data_ != nullptr; }
  void reset() { *this = Buffer(); }

 private:
  friend class BufferPool;
  std::shared_ptr<void> lease_;
  const MemorySpace* space_ = &host_memory();
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t pool_offset_ = 0;
};

/// Fixed number of equal blocks in a single allocation (and registration). Thread-safe. The pool's memory outlives
/// every Buffer: leases share ownership of it.
class BufferPool {
 public:
  /// `on_return` is called after a block has returned to an empty pool, on the thread that dropped it; it must only
  /// enqueue. `space` outlives the pool and its buffers.
  BufferPool(std::size_t block_bytes, std::size_t blocks, std::function<void()> on_return = {},
             MemorySpace& space = host_memory());
  /// Returns a free block, or an empty Buffer if none is free.
  [[nodiscard]] Buffer acquire();
  [[nodiscard]] std::size_t available() const;
  [[nodiscard]] std::size_t capacity() const { return blocks_; }
  [[nodiscard]] std::size_t block_bytes() const { return block_bytes_; }
  /// Returns the memory of all blocks, for registration with the transport.
  [[nodiscard]] std::byte* memory() const;
  [[nodiscard]] std::size_t memory_bytes() const;
  [[nodiscard]] const MemorySpace& space() const { return *space_; }

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with outstanding leases, which may outlive the pool
  const MemorySpace* space_;
  std::size_t block_bytes_;
  std::size_t blocks_;
};

}  // namespace maestro
