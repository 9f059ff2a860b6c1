// SPDX-License-Identifier: Apache-2.0
// Embedding, gathering and rotation, row by row. Bodies for for_rows_kernel; an item is V columns. For kernel sources.
#pragma once

#include <cmath>

#include "runtime/ops/cuda/rows/pointwise.cuh"

namespace maestro::cuda {

template <class T, int V>
struct EmbeddingRows {
  const T* table;  // (tokens, C)
  const std::int32_t* ids;
  const float* places;  // (positions, C) or null
  const std::int32_t* positions;
  float* y;  // (M, C)
  int columns;
  float scale;  // factor of the table

  __device__ void operator()(std::int64_t row, int item) const {
    const std::int32_t id = ids[row];
    float sum[V] = {};
    if (id >= 0) load_floats(table + std::int64_t{id} * columns + item * V, sum);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) sum[i] *= scale;
    if (places != nullptr) {
      float place[V];
      load_floats(places + std::int64_t{positions[row]} * columns + item * V, place);
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) sum[i] = id >= 0 ? sum[i] + place[i] : place[i];
    }
    store_floats(y + row * columns + item * V, sum);
  }
};

/// A row is an id.
struct ShiftedIds {
  const std::int32_t* ids;
  std::int32_t* out;
  std::int64_t by;
  std::int64_t limit;

  __device__ void operator()(std::int64_t row, int) const { out[row] = element::shifted_id(ids[row], by, limit); }
};

/// An item is a picked column.
struct PickedColumns {
  const std::int32_t* from;     // (M, width)
  const std::int32_t* columns;  // (M, picked)
  std::int32_t* to;             // (M, picked)
  std::int64_t width;
  std::int64_t picked;

  __device__ void operator()(std::int64_t row, int item) const {
    to[row * picked + item] = from[row * width + columns[row * picked + item]];
  }
};

template <int V, class From, class To>
struct GatheredRows {
  const From* from;  // (M, C)
  const std::int32_t* index;
  To* to;  // (N, C)
  int columns;

  __device__ void operator()(std::int64_t row, int item) const {
    float values[V];
    load_floats(from + std::int64_t{index[row]} * columns + item * V, values);
    store_floats(to + row * columns + item * V, values);
  }
};

inline constexpr int most_rotary_pairs = 128;  ///< rotated pairs per head

/// Frequencies as a kernel argument, so that a recorded launch keeps a copy.
struct RotaryAngles {
  double inverse[most_rotary_pairs];
  std::uint8_t axis[most_rotary_pairs];
};

/// Computes cosines and sines of p inverse[i] in f64, rounded once; an item is a value of i.
struct RotaryAngleRows {
  const std::int32_t* positions;  // (M, axes)
  int axes;
  float* cosines;  // (M, pairs), times the magnitude
  float* sines;    // (M, pairs), times magnitude and direction
  double magnitude;
  double direction;
  int pairs;
  RotaryAngles angles;

  __device__ void operator()(std::int64_t row, int item) const {
    const double angle = static_cast<double>(positions[row * axes + angles.axis[item]]) * angles.inverse[item];
    cosines[row * pairs + item] = static_cast<float>(magnitude * std::cos(angle));
    sines[row * pairs + item] = static_cast<float>(direction * magnitude * std::sin(angle));
  }
};

/// Rotates the first columns of the first heads of each row in place; an item is V pairs of a head.
template <int V, class T>
struct RotatedRows {
  T* qkv;  // (M, stride)
  const float* cosines;
  const float* sines;
  std::int64_t stride;
  int head_size;
  int pairs;

  __device__ void operator()(std::int64_t row, int item) const {
    const int items_per_head = pairs / V;
    const int head = item / items_per_head;
    const int column = (item - head * items_per_head) * V;
    T* first = qkv + row * stride + std::int64_t{head} * head_size + column;
    float a[V];
    float b[V];
    float cosine[V];
    float sine[V];
    load_floats(first, a);
    load_floats(first + pairs, b);
    load_floats(cosines + row * pairs + column, cosine);
    load_floats(sines + row * pairs + column, sine);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) {
      const element::RotaryPair pair = element::RotaryPair{a[i], b[i]}.rotated(cosine[i], sine[i]);
      a[i] = pair.first;
      b[i] = pair.second;
    }
    store_floats(first, a);
    store_floats(first + pairs, b);
  }
};

}  // namespace maestro::cuda
