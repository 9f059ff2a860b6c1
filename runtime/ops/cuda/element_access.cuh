// SPDX-License-Identifier: Apache-2.0
// Elements of either storage type as f32, several at once, and the choice of a type at run time. For kernel sources.
#pragma once

#include "runtime/core/tensor.hpp"
#include "runtime/ops/cuda/cuda_language.hpp"
#include "runtime/ops/cuda/launch_geometry.hpp"

#if defined(MAESTRO_FAKE_CUDA)
#define MAESTRO_UNROLL
#define MAESTRO_UNROLL_4
#else
#define MAESTRO_UNROLL _Pragma("unroll")
#define MAESTRO_UNROLL_4 _Pragma("unroll 4")  // keeps the loads of four iterations in flight
#endif

namespace maestro::cuda {

/// Elements per access for N requested elements.
template <class T, int N>
inline constexpr int access_width = N < pack_width<T> ? N : pack_width<T>;

/// Loads N elements from `from`, which is aligned to an access.
template <int N, class T>
__device__ __forceinline__ void load_floats(const T* from, float (&to)[N]) {
  constexpr int width = access_width<T, N>;
  MAESTRO_UNROLL
  for (int first = 0; first < N; first += width) {
    const Pack<T, width> pack = load_pack<T, width>(from + first);
    MAESTRO_UNROLL
    for (int i = 0; i < width; ++i) to[first + i] = to_float(pack.values[i]);
  }
}
template <int N, class T>
__device__ __forceinline__ void store_floats(T* to, const float (&from)[N]) {
  constexpr int width = access_width<T, N>;
  MAESTRO_UNROLL
  for (int first = 0; first < N; first += width) {
    Pack<T, width> pack;
    MAESTRO_UNROLL
    for (int i = 0; i < width; ++i) pack.values[i] = from_float<T>(from[first + i]);
    store_pack<T, width>(to + first, pack);
  }
}

template <class T>
struct Type {
  using type = T;
};
/// Calls body(Type<float>()) or body(Type<bfloat16>()).
template <class Body>
void with_type(DType dtype, Body body) {
  if (dtype == DType::bf16) {
    body(Type<bfloat16>());
  } else {
    body(Type<float>());
  }
}
template <bool Value>
struct Flag {
  static constexpr bool value = Value;
};
/// Calls body(Flag<value>()).
template <class Body>
void with_flag(bool value, Body body) {
  if (value) {
    body(Flag<true>());
  } else {
    body(Flag<false>());
  }
}

template <class T>
T* data_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}
/// Returns whether rows of the tensor can be read `width` elements at a time, with accesses of at most 16 bytes.
inline bool packs_fit(const Tensor& tensor, std::int64_t columns, int width) {
  const std::size_t bytes = size_of(tensor.dtype());
  const int most = static_cast<int>(16 / bytes);
  return columns % width == 0 && aligned(tensor.raw(), columns, bytes, width < most ? width : most);
}

}  // namespace maestro::cuda
