// SPDX-License-Identifier: Apache-2.0
// Working memory of operator calls: a call leases an arena for its duration. Calls of several device threads never
// share an arena, and a call whose sizes have occurred before maps no memory.
// SC-1 (exclusive lease): an arena is leased to a single call at a time.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/arena.hpp"

namespace maestro::cpu {

/// Thread-safe. Leases must end before the pool does.
class ScratchPool {
  struct Working {
    Arena arena{std::size_t{4} << 20};
    std::vector<Tensor> taken;
  };

 public:
  /// Memory of a call; everything allocated from it is released when the lease ends.
  class Lease {
   public:
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();
    /// Returns uninitialised memory, 64-byte aligned, valid until the lease ends.
    [[nodiscard]] Tensor tensor(Shape shape, DType dtype);
    [[nodiscard]] float* floats(std::int64_t count) { return tensor(Shape{count}, DType::f32).data<float>(); }

   private:
    friend class ScratchPool;
    Lease(ScratchPool& pool, std::unique_ptr<Working> working) : pool_(&pool), working_(std::move(working)) {}
    ScratchPool* pool_;
    std::unique_ptr<Working> working_;
  };

  [[nodiscard]] Lease lease();

 private:
  void give_back(std::unique_ptr<Working> working);
  std::mutex mutex_;
  std::vector<std::unique_ptr<Working>> idle_;  // last in, first out: the warmest memory is reused
};

}  // namespace maestro::cpu
