// SPDX-License-Identifier: Apache-2.0
// The subset of CUDA's device language that kernels of this folder are written in, so that the same sources run on a
// device and, thread by thread, on the CPU (MAESTRO_FAKE_CUDA names the header of that double). Include it in
// kernel sources only (.cuh and .cu); hosts of the kernels include kernels.hpp.
//
// In it: __global__, __device__, __forceinline__, __launch_bounds__; threadIdx, blockIdx, blockDim, gridDim;
// __syncthreads, __syncwarp; __shfl_sync, __shfl_xor_sync, __shfl_down_sync, __shfl_up_sync, __ballot_sync, __any_sync,
// __all_sync; __ldg; integer atomicAdd, atomicMax, atomicMin, atomicExch, atomicCAS; __threadfence; __logf,
// __fdividef, rsqrtf, __uint_as_float, __float_as_uint, __popc, __ffs, __clz; and the names that this header defines.
// Not in it: `__shared__` (use MAESTRO_SHARED), textures, inline PTX (but in element_math.hpp), atomics on floats
// (results would depend on timing).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "runtime/core/dtype.hpp"
#include "runtime/ops/cuda/device_error.hpp"

#if defined(MAESTRO_FAKE_CUDA)
#include MAESTRO_FAKE_CUDA
#else
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#endif

/// T* name: `count` elements of T in the block's shared memory, 16-byte aligned and uninitialised.
#if defined(MAESTRO_FAKE_CUDA)
#define MAESTRO_SHARED(T, name, count) \
  static char name##_key = 0;          \
  T* const name = reinterpret_cast<T*>(::maestro::fake_cuda::shared_variable(&name##_key, sizeof(T) * (count)))
#else
#define MAESTRO_SHARED(T, name, count)                                       \
  __shared__ __align__(16) unsigned char name##_memory[sizeof(T) * (count)]; \
  T* const name = reinterpret_cast<T*>(name##_memory)
#endif

namespace maestro::cuda {

inline constexpr unsigned all_lanes = 0xffffffffU;
inline constexpr int warp_size = 32;
inline constexpr int most_warps = 32;  ///< warps of a block
/// Shared memory of a block without a request, static and dynamic together; a kernel that needs more must request it.
inline constexpr std::size_t shared_bytes_without_asking = std::size_t{48} * 1024;
/// Static shared memory of kernels that also use dynamic memory: the memory of reductions over a block.
inline constexpr std::size_t most_static_shared_bytes = std::size_t{2} * 1024;

/// The block's dynamic shared memory, 16-byte aligned and uninitialised.
template <class T>
__device__ __forceinline__ T* shared_memory() {
#if defined(MAESTRO_FAKE_CUDA)
  return reinterpret_cast<T*>(fake_cuda::dynamic_shared());
#else
  extern __shared__ uint4 dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
#endif
}

// ---- numbers ----

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
/// Rounds to nearest even.
template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ bfloat16 from_float<bfloat16>(float value) {
#if defined(MAESTRO_FAKE_CUDA)
  return bfloat16(value);
#else
  bfloat16 result;
  result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return result;
#endif
}

// ---- loads and stores, 16 bytes each ----

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int pack_width = static_cast<int>(16 / sizeof(T));

/// N elements of T that move in a single access; T* used with it is aligned to sizeof(Pack).
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};

template <class T, int N>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
#if defined(MAESTRO_FAKE_CUDA)
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(Pack<T, N>) != 0) fake_cuda::kernel_fault("unaligned load");
  Pack<T, N> pack;
  std::memcpy(pack.values, from, sizeof pack.values);
  return pack;
#else
  return *reinterpret_cast<const Pack<T, N>*>(from);
#endif
}
template <class T, int N>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& pack) {
#if defined(MAESTRO_FAKE_CUDA)
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(Pack<T, N>) != 0) fake_cuda::kernel_fault("unaligned store");
  std::memcpy(to, pack.values, sizeof pack.values);
#else
  // Uses a built-in type: nvcc 13 may split a struct assignment into stores of its members, 2 bytes each in bf16; it
  // splits this one into words at worst, which reach 96% of a copy's bandwidth on an H200.
  if constexpr (sizeof pack == 16) {
    *reinterpret_cast<uint4*>(to) = __builtin_bit_cast(uint4, pack);
  } else if constexpr (sizeof pack == 8) {
    *reinterpret_cast<uint2*>(to) = __builtin_bit_cast(uint2, pack);
  } else {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
  }
#endif
}

// ---- warps and blocks; blocks are one-dimensional, without partial warps ----

__device__ __forceinline__ int lane_index() {
  return static_cast<int>(threadIdx.x % warp_size);
}
__device__ __forceinline__ int warp_index() {
  return static_cast<int>(threadIdx.x / warp_size);
}
__device__ __forceinline__ int warp_count() {
  return static_cast<int>(blockDim.x / warp_size);
}

struct Sum {
  template <class T>
  __device__ static T of(T a, T b) {
    return a + b;
  }
};
struct Maximum {
  template <class T>
  __device__ static T of(T a, T b) {
    return a < b ? b : a;
  }
};

/// Returns the combined value of a group of `lanes` lanes, a power of two, on all its lanes.
template <class Combine, class T>
__device__ __forceinline__ T warp_reduce(T value, int lanes = warp_size) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    value = Combine::of(value, __shfl_xor_sync(all_lanes, value, step));
  }
  return value;
}
template <class T>
__device__ __forceinline__ T warp_sum(T value, int lanes = warp_size) {
  return warp_reduce<Sum>(value, lanes);
}
template <class T>
__device__ __forceinline__ T warp_max(T value, int lanes = warp_size) {
  return warp_reduce<Maximum>(value, lanes);
}

/// Combines the values of all threads in a fixed order; returns the same on each. Called by all threads of the block.
template <class Combine, class T>
__device__ __forceinline__ T block_reduce(T value) {
  MAESTRO_SHARED(T, of_warps, most_warps);
  value = warp_reduce<Combine>(value);
  if (warp_count() == 1) return value;
  __syncthreads();  // the previous call may still read of_warps
  if (lane_index() == 0) of_warps[warp_index()] = value;
  __syncthreads();
  T result = of_warps[0];
  for (int warp = 1; warp < warp_count(); ++warp) result = Combine::of(result, of_warps[warp]);
  return result;
}
template <class T>
__device__ __forceinline__ T block_sum(T value) {
  return block_reduce<Sum>(value);
}
template <class T>
__device__ __forceinline__ T block_max(T value) {
  return block_reduce<Maximum>(value);
}

// ---- launches ----

struct LaunchShape {
  const char* kernel;  ///< for errors
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

/// Puts the kernel on the stream. Throws DeviceError, with the kernel's name, when the launch is refused; a failure
/// while the kernel runs shows in a later call.
template <class... Parameters, class... Arguments>
void launch(const LaunchShape& shape, void (*kernel)(Parameters...), Arguments... arguments) {
  if (shape.shared_bytes > shared_bytes_without_asking - most_static_shared_bytes) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          shape.kernel);
  }
#if defined(MAESTRO_FAKE_CUDA)
  fake_cuda::enqueue_kernel({shape.kernel, shape.grid, shape.block, shape.shared_bytes,
                             [kernel, ... held = static_cast<Parameters>(arguments)] { kernel(held...); }},
                            reinterpret_cast<const void*>(kernel), shape.stream);
#else
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), shape.kernel);
#endif
  check(cudaGetLastError(), shape.kernel);
}

}  // namespace maestro::cuda
