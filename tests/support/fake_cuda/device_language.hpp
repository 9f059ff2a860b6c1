// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's device language that kernels use, for the CPU; see cuda_language.hpp and kernel_run.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/support/fake_cuda/host_cuda.hpp"
#include "tests/support/fake_cuda/kernel_run.hpp"

#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __launch_bounds__
#define __global__ inline
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (::maestro::fake_cuda::place().thread)
#define blockIdx (::maestro::fake_cuda::place().block)
#define blockDim (::maestro::fake_cuda::place().block_size)
#define gridDim (::maestro::fake_cuda::place().grid_size)
#define __syncthreads() ::maestro::fake_cuda::block_barrier(__FILE__, __LINE__)

namespace maestro::fake_cuda {

/// Returns the value of `lane`, among the lanes of `mask`.
template <class T>
T lane_value(unsigned mask, T value, unsigned lane) {
  static_assert(sizeof(T) <= LaneValue::most_bytes);
  LaneValue own;
  std::memcpy(own.bytes.data(), &value, sizeof value);
  const LaneValue* all = warp_exchange(mask, own);
  if (lane >= warp_lanes || (mask >> lane & 1U) == 0) kernel_fault("a shuffle reads a lane outside of its mask");
  T result;
  std::memcpy(&result, all[lane].bytes.data(), sizeof result);
  return result;
}

/// Returns `other`, or this lane if `other` is outside this lane's group of `width` lanes.
inline unsigned lane_within(unsigned other, unsigned width) {
  const unsigned own = lane_number();
  return other / width == own / width ? other : own;
}

template <class T>
T atomic_change(T* at, T operand, T (*change)(T, T)) {
  T seen = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (true) {
    const T wanted = change(seen, operand);
    if (__atomic_compare_exchange_n(at, &seen, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return seen;
  }
}

}  // namespace maestro::fake_cuda

// ---- the global names of the device language ----

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  const unsigned group = ::maestro::fake_cuda::lane_number() / static_cast<unsigned>(width);
  const unsigned from =
      group * static_cast<unsigned>(width) + static_cast<unsigned>(lane) % static_cast<unsigned>(width);
  return ::maestro::fake_cuda::lane_value(mask, value, from);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  namespace fake_cuda = ::maestro::fake_cuda;
  const unsigned other = fake_cuda::lane_number() ^ static_cast<unsigned>(lane_mask);
  return fake_cuda::lane_value(mask, value, fake_cuda::lane_within(other, static_cast<unsigned>(width)));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  namespace fake_cuda = ::maestro::fake_cuda;
  const unsigned other = fake_cuda::lane_number() + delta;
  return fake_cuda::lane_value(mask, value, fake_cuda::lane_within(other, static_cast<unsigned>(width)));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  namespace fake_cuda = ::maestro::fake_cuda;
  const unsigned other = fake_cuda::lane_number() - delta;  // wraps to another group below lane 0
  return fake_cuda::lane_value(mask, value, fake_cuda::lane_within(other, static_cast<unsigned>(width)));
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  namespace fake_cuda = ::maestro::fake_cuda;
  fake_cuda::LaneValue own;
  std::memcpy(own.bytes.data(), &predicate, sizeof predicate);
  const fake_cuda::LaneValue* all = fake_cuda::warp_exchange(mask, own);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < fake_cuda::warp_lanes; ++lane) {
    int vote = 0;
    if ((mask >> lane & 1U) == 0) continue;
    std::memcpy(&vote, all[lane].bytes.data(), sizeof vote);
    votes |= vote != 0 ? 1U << lane : 0U;
  }
  return votes;
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask ? 1 : 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffU) {
  static_cast<void>(::maestro::fake_cuda::warp_exchange(mask, {}));
}
inline void __threadfence() {}
inline void __threadfence_system() {}

template <class T>
T __ldg(const T* at) {
  return *at;
}

template <class T>
T atomicAdd(T* at, T value) {
  return ::maestro::fake_cuda::atomic_change<T>(at, value, [](T a, T b) { return static_cast<T>(a + b); });
}
template <class T>
T atomicMax(T* at, T value) {
  return ::maestro::fake_cuda::atomic_change<T>(at, value, [](T a, T b) { return a < b ? b : a; });
}
template <class T>
T atomicMin(T* at, T value) {
  return ::maestro::fake_cuda::atomic_change<T>(at, value, [](T a, T b) { return b < a ? b : a; });
}
template <class T>
T atomicExch(T* at, T value) {
  return ::maestro::fake_cuda::atomic_change<T>(at, value, [](T, T b) { return b; });
}
template <class T>
T atomicCAS(T* at, T expected, T value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

inline float __uint_as_float(unsigned bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
inline int __clz(int bits) {
  return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits));
}
inline float rsqrtf(float value) {
  return 1.0F / std::sqrt(value);
}
inline float __expf(float value) {
  return std::exp(value);
}
inline float __logf(float value) {
  return std::log(value);
}
inline float __fdividef(float numerator, float denominator) {
  return numerator / denominator;
}
