// SPDX-License-Identifier: Apache-2.0
// Copies from device memory into shared memory that run while a block computes. For kernel sources only.
#pragma once

#include <vector>

#include "runtime/ops/cuda/cuda_language.hpp"

namespace maestro::cuda {

#if defined(MAESTRO_FAKE_CUDA)
struct PendingCopy {
  void* to;
  const void* from;
};
/// Returns the pending copies of the block's thread that now runs on this host thread.
inline std::vector<PendingCopy>& pending_copies() {
  thread_local std::vector<std::vector<PendingCopy>> of_threads;
  if (of_threads.size() <= threadIdx.x) of_threads.resize(threadIdx.x + 1);
  return of_threads[threadIdx.x];
}
#endif

/// Starts a copy of 16 bytes, both ends aligned to 16; the target is undefined before wait_for_copies().
template <class T>
__device__ __forceinline__ void copy_later(T* to_shared, const T* from) {
#if defined(MAESTRO_FAKE_CUDA)
  constexpr std::uintptr_t unaligned = 15;
  if (((reinterpret_cast<std::uintptr_t>(to_shared) | reinterpret_cast<std::uintptr_t>(from)) & unaligned) != 0) {
    fake_cuda::kernel_fault("unaligned copy");
  }
  std::memset(static_cast<void*>(to_shared), 0xFF, 16);  // NaN until the copy is waited for
  pending_copies().push_back({to_shared, from});
#else
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to_shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(address), "l"(from) : "memory");
#endif
}

/// Waits for all copies that this thread has started; copies of other threads are complete after a barrier.
__device__ __forceinline__ void wait_for_copies() {
#if defined(MAESTRO_FAKE_CUDA)
  for (const PendingCopy& copy : pending_copies()) std::memcpy(copy.to, copy.from, 16);
  pending_copies().clear();
#else
  asm volatile("cp.async.wait_all;\n" ::: "memory");
#endif
}

/// Walks [begin, end) in steps: load(first, stage) begins to fill the stage's shared memory, compute(first, stage) uses
/// it. With two stages a step is loaded while the previous step is computed. Called by all threads of the block with
/// equal arguments; ends with a barrier, after which the memory may be used again.
template <int Stages, class Load, class Compute>
__device__ __forceinline__ void stream_tiles(std::int64_t begin, std::int64_t end, int step, Load load,
                                             Compute compute) {
  static_assert(Stages == 1 || Stages == 2);
  if (begin >= end) return wait_for_copies();  // for copies that the caller has begun
  load(begin, 0);
  int stage = 0;
  for (std::int64_t first = begin; first < end; first += step) {
    wait_for_copies();
    __syncthreads();  // this stage is filled, and no thread computes with the other any more
    if (Stages == 2 && first + step < end) load(first + step, 1 - stage);
    compute(first, stage);
    if constexpr (Stages == 2) {
      stage = 1 - stage;
    } else if (first + step < end) {
      __syncthreads();
      load(first + step, 0);
    }
  }
  __syncthreads();
}

}  // namespace maestro::cuda
