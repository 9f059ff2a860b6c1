// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/buffer.hpp"

namespace maestro {

struct BufferPool::State {
  std::mutex mutex;
  SpaceMemory memory;
  std::vector<std::size_t> free;
  std::function<void()> on_return;
};

namespace {
constexpr std::size_t alignment = 64;
}

BufferPool::BufferPool(std::size_t block_bytes, std::size_t blocks, std::function<void()> on_return, MemorySpace& space)
    : state_(std::make_shared<State>()),
      space_(&space),
      block_bytes_((block_bytes + alignment - 1) / alignment * alignment),
      blocks_(blocks) {
  state_->memory = SpaceMemory(space, block_bytes_ * blocks_);
  state_->on_return = std::move(on_return);
  state_->free.reserve(blocks);
  for (std::size_t block = blocks; block-- > 0;) state_->free.push_back(block);
}

Buffer BufferPool::acquire() {
  std::size_t block = 0;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->free.empty()) return {};
    block = state_->free.back();
    state_->free.pop_back();
  }
  Buffer buffer;
  buffer.space_ = space_;
  buffer.pool_offset_ = block * block_bytes_;
  buffer.data_ = state_->memory.data() + buffer.pool_offset_;
  buffer.size_ = block_bytes_;
  buffer.lease_ = std::shared_ptr<void>(buffer.data_, [state = state_, block](void*) {
    bool had_none = false;
    {
      const std::lock_guard lock(state->mutex);
      had_none = state->free.empty();
      state->free.push_back(block);
    }
    if (had_none && state->on_return) state->on_return();
  });
  return buffer;
}

std::size_t BufferPool::available() const {
  const std::lock_guard lock(state_->mutex);
  return state_->free.size();
}

std::byte* BufferPool::memory() const {
  return state_->memory.data();
}
std::size_t BufferPool::memory_bytes() const {
  return state_->memory.size();
}

}  // namespace maestro
