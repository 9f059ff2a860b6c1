// SPDX-License-Identifier: Apache-2.0
// Kernels that work element by element: on flat vectors (map), and on rows (for_rows). For kernel sources.
#pragma once

#include "runtime/ops/cuda/element_access.cuh"
#include "runtime/ops/element_math.hpp"

namespace maestro::cuda {

/// Sets out[i] = op(a[i], b[i]) for i < count; out may be a or b. `b` is not read unless Op::takes_two.
template <class A, class B, class Out>
struct MapCall {
  std::int64_t count;
  const A* a;
  const B* b;
  Out* out;
};

/// `Packed`: a, b and out are aligned to accesses of flat_width elements.
template <bool Packed, class Op, class A, class B, class Out>
__global__ void __launch_bounds__(flat_threads) map_kernel(MapCall<A, B, Out> call, Op op) {
  constexpr int width = Packed ? flat_width : 1;
  constexpr int steps = Packed ? flat_steps : flat_steps * 2;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * width;
  for (std::int64_t tile = blockIdx.x * step * steps; tile < call.count; tile += gridDim.x * step * steps) {
    const std::int64_t first = tile + static_cast<std::int64_t>(threadIdx.x) * width;
    float a[steps][width];
    float b[steps][width];
    MAESTRO_UNROLL
    for (int s = 0; s < steps; ++s) {
      const std::int64_t at = first + s * step;
      if (at + width > call.count) continue;
      load_floats(call.a + at, a[s]);
      if constexpr (Op::takes_two) load_floats(call.b + at, b[s]);
    }
    MAESTRO_UNROLL
    for (int s = 0; s < steps; ++s) {
      const std::int64_t at = first + s * step;
      if (at + width <= call.count) {
        MAESTRO_UNROLL
        for (int i = 0; i < width; ++i) a[s][i] = op(a[s][i], Op::takes_two ? b[s][i] : 0.0F);
        store_floats(call.out + at, a[s]);
        continue;
      }
      for (std::int64_t i = at; i < call.count; ++i) {
        const float second = Op::takes_two ? to_float(call.b[i]) : 0.0F;
        call.out[i] = from_float<Out>(op(to_float(call.a[i]), second));
      }
    }
  }
}

struct CopyOp {
  static constexpr bool takes_two = false;
  __device__ float operator()(float a, float) const { return a; }
};
struct AddOp {
  static constexpr bool takes_two = true;
  __device__ float operator()(float a, float b) const { return a + b; }
};
template <class Form>
struct GeluOp {
  static constexpr bool takes_two = false;
  __device__ float operator()(float x, float) const { return Form::value(x); }
};
template <class Form>
struct GeluBackwardOp {
  static constexpr bool takes_two = true;
  __device__ float operator()(float dy, float x) const { return dy * Form::slope(x); }
};

struct SoftcapOp {
  static constexpr bool takes_two = false;
  float cap;
  __device__ float operator()(float x, float) const { return element::Softcap::value(x, cap); }
};

struct ScaleOp {
  static constexpr bool takes_two = false;
  float factor;
  __device__ float operator()(float x, float) const { return factor * x; }
};
struct MultiplyOp {
  static constexpr bool takes_two = true;
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct SigmoidOp {
  static constexpr bool takes_two = false;
  __device__ float operator()(float x, float) const { return element::sigmoid(x); }
};
struct SigmoidBackwardOp {
  static constexpr bool takes_two = true;
  __device__ float operator()(float dy, float y) const { return dy * y * (1.0F - y); }
};
struct TanhOp {
  static constexpr bool takes_two = false;
  __device__ float operator()(float x, float) const { return element::tanh_of(x); }
};
struct TanhBackwardOp {
  static constexpr bool takes_two = true;
  __device__ float operator()(float dy, float y) const { return dy * (1.0F - y * y); }
};

/// Calls body(row, item) for all row < rows and item < items, each once.
template <class Body>
__global__ void __launch_bounds__(flat_threads)
    for_rows_kernel(Body body, std::int64_t rows, int items, int lanes_log2) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int lanes = 1 << lanes_log2;
  const int rows_at_once = flat_threads >> lanes_log2;
  for (std::int64_t row = std::int64_t{blockIdx.x} * rows_at_once + (thread >> lanes_log2); row < rows;
       row += std::int64_t{gridDim.x} * rows_at_once) {
    for (int item = thread & (lanes - 1); item < items; item += lanes) body(row, item);
  }
}

/// Gates and ups in V columns; a row has 2 `features` values: [gate | up], or in turn.
template <bool alternate, int V>
struct GatePairs {
  float gate[V];
  float up[V];

  template <class T>
  __device__ __forceinline__ void load(const T* row, int item, int features) {
    if constexpr (alternate) {
      float both[2 * V];
      load_floats(row + 2 * V * item, both);
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) {
        gate[i] = both[2 * i];
        up[i] = both[2 * i + 1];
      }
    } else {
      load_floats(row + V * item, gate);
      load_floats(row + features + V * item, up);
    }
  }
  template <class T>
  __device__ __forceinline__ void store(T* row, int item, int features) const {
    if constexpr (alternate) {
      float both[2 * V];
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) {
        both[2 * i] = gate[i];
        both[2 * i + 1] = up[i];
      }
      store_floats(row + 2 * V * item, both);
    } else {
      store_floats(row + V * item, gate);
      store_floats(row + features + V * item, up);
    }
  }
};

/// Computes y (M, F) = unit(gate, up) from x (M, 2F); an item is V columns of y.
template <class Unit, int V, class T>
struct GluRows {
  Unit unit;
  const T* x;
  T* y;
  int features;

  __device__ void operator()(std::int64_t row, int item) const {
    GatePairs<Unit::alternate, V> pairs;
    pairs.load(x + row * 2 * features, item, features);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) pairs.gate[i] = unit.value(pairs.gate[i], pairs.up[i]);
    store_floats(y + row * features + item * V, pairs.gate);
  }
};

/// Computes dx (M, 2F) from dy (M, F) and x (M, 2F).
template <class Unit, int V, class T>
struct GluBackwardRows {
  static constexpr int width = V;
  Unit unit;
  const T* dy;
  const T* x;
  T* dx;
  int features;

  __device__ void operator()(std::int64_t row, int item) const {
    const std::int64_t first = row * 2 * features;
    float d[V];
    GatePairs<Unit::alternate, V> pairs;
    load_floats(dy + row * features + item * V, d);
    pairs.load(x + first, item, features);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) {
      const element::GluGradient<float> gradient = unit.gradient(d[i], pairs.gate[i], pairs.up[i]);
      pairs.gate[i] = gradient.dgate;
      pairs.up[i] = gradient.dup;
    }
    pairs.store(dx + first, item, features);
  }
};

}  // namespace maestro::cuda
