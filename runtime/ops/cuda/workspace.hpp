// SPDX-License-Identifier: Apache-2.0
// Scratch memory on a device for a stream's operators.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace maestro::cuda {

/// Grows and never shrinks or moves, so that a captured graph may keep addresses. Memory is handed out like a stack
/// (Scope); a stream's work is in order, so an operator may receive memory that an earlier operator still uses. Not
/// thread-safe; belongs to the device that is current when it grows.
class Workspace {
 public:
  /// Returns at least `bytes`, 256-byte aligned and uninitialised, until the innermost Scope ends. Throws DeviceError.
  [[nodiscard]] std::byte* take(std::size_t bytes);
  template <class T>
  [[nodiscard]] T* take_array(std::size_t count) {
    return reinterpret_cast<T*>(take(count * sizeof(T)));
  }
  [[nodiscard]] std::size_t reserved_bytes() const;

  /// Returns memory taken during its life when it ends.
  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(&workspace), chunk_(workspace.chunk_), used_(workspace.used_) {}
    ~Scope() {
      workspace_->chunk_ = chunk_;
      workspace_->used_ = used_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace* workspace_;
    std::size_t chunk_;
    std::size_t used_;
  };

 private:
  struct Free {
    // A failed device refuses to free; destroying its context releases the memory.
    void operator()(std::byte* memory) const { static_cast<void>(cudaFree(memory)); }
  };
  struct Chunk {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t bytes = 0;
  };
  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0;  // chunk that memory is taken from
  std::size_t used_ = 0;   // used bytes of the chunk
};

}  // namespace maestro::cuda
