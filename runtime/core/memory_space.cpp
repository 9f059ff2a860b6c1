// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/memory_space.hpp"

#include <cstring>
#include <map>
#include <mutex>

#include "runtime/core/aligned_memory.hpp"

namespace maestro {

namespace {

class HostMemory final : public MemorySpace {
 public:
  [[nodiscard]] bool host() const override { return true; }
  std::byte* allocate(std::size_t bytes) override {
    AlignedMemory block(bytes == 0 ? 1 : bytes);
    std::byte* const begin = block.data();
    const std::lock_guard lock(mutex_);
    blocks_.emplace(begin, std::move(block));
    return begin;
  }
  void release(std::byte* block, std::size_t /*bytes*/) noexcept override {
    const std::lock_guard lock(mutex_);
    blocks_.erase(block);
  }
  void read(std::byte* host_to, const std::byte* from, std::size_t bytes) override { write(host_to, from, bytes); }
  void write(std::byte* to, const std::byte* host_from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, host_from, bytes);
  }
  void zero(std::byte* to, std::size_t bytes) override {
    if (bytes > 0) std::memset(to, 0, bytes);
  }

 private:
  std::mutex mutex_;
  std::map<std::byte*, AlignedMemory> blocks_;
};

}  // namespace

MemorySpace& host_memory() {
  static HostMemory* const memory = new HostMemory;  // for the program's life: its blocks may outlive all statics
  return *memory;
}

}  // namespace maestro
