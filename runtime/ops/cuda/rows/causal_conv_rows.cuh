// SPDX-License-Identifier: Apache-2.0
// Bodies for for_rows_kernel of causal convolutions; formulas: CausalConv, CausalConvBackward (operators.hpp). An item
// is V channels of a row. For kernel sources.
#pragma once

#include "runtime/ops/cuda/rows/pointwise.cuh"
#include "runtime/ops/operators.hpp"

namespace maestro::cuda {

/// What a row of results reads: rows are numbered from its sample's, or its layout's, first row.
struct ConvPlace {
  std::int64_t number;  ///< the row's own number
  std::int64_t sample;  ///< the sample's first number
  std::int64_t held;    ///< the first number that x has; rows before it lie elsewhere
  std::int64_t row;     ///< the row of x that has it
  std::int64_t shift;   ///< the place of an earlier row, minus its number
};

/// Samples in a layout.
struct ConvSamples {
  const std::int32_t* offsets;  // (samples + 1)
  int samples;
  std::int64_t first;   // the layout's row that x begins with
  std::int64_t before;  // B

  /// Returns the sample that row `number` of the layout belongs to.
  [[nodiscard]] __device__ __forceinline__ int sample_of(std::int64_t number) const {
    int low = 0;
    int high = samples;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (offsets[middle] <= number) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
  [[nodiscard]] __device__ __forceinline__ ConvPlace place(std::int64_t row) const {
    const std::int64_t number = first + row;
    return {number, offsets[sample_of(number)], first, 0, before - first};
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t earlier(const ConvPlace& place, std::int64_t number) const {
    return number + place.shift;
  }
};

/// Sequences with tails.
struct ConvTails {
  const CachedSequence* sequences;  // (R), or null
  std::int64_t first;
  std::int64_t reach;

  [[nodiscard]] __device__ __forceinline__ ConvPlace place(std::int64_t row) const {
    if (sequences == nullptr) return {first + row, 0, first, 0, 0};
    return {sequences[row].rows, 0, sequences[row].rows, row, sequences[row].begin};
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t earlier(const ConvPlace& place, std::int64_t number) const {
    return place.shift + number % reach;
  }
};

/// Rows that results read.
template <class T>
struct ConvRows {
  const T* x;
  const T* earlier;
  int channels;
  int width;
  std::int64_t dilation;
  bool gated;

  [[nodiscard]] __device__ __forceinline__ int stride() const { return gated ? 3 * channels : channels; }
  [[nodiscard]] __device__ __forceinline__ int read() const { return gated ? 2 * channels : channels; }

  /// Loads in_gate x of V channels.
  template <class Places, int V>
  __device__ __forceinline__ void load(const Places& places, const ConvPlace& at, std::int64_t number, int channel,
                                       float (&to)[V]) const {
    const bool held = number >= at.held;
    const T* from = held ? x + (number - at.held + at.row) * stride() : earlier + places.earlier(at, number) * read();
    load_floats(from + (held ? stride() : read()) - channels + channel, to);
    if (!gated) return;
    float gate[V];
    load_floats(from + channel, gate);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) to[i] *= gate[i];
  }
};

/// The filters' sums. A channel's weights are adjacent.
template <class T, class Places>
struct ConvSums {
  ConvRows<T> rows;
  Places places;
  const float* weight;
  const float* bias;  // or null

  template <int V>
  __device__ __forceinline__ void sum(const ConvPlace& at, int channel, float (&to)[V]) const {
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) to[i] = bias == nullptr ? 0.0F : bias[channel + i];
    for (int j = 0; j < rows.width; ++j) {
      const std::int64_t number = at.number - (rows.width - 1 - j) * rows.dilation;
      if (number < at.sample) continue;
      float u[V];
      rows.load(places, at, number, channel, u);
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) to[i] += weight[(channel + i) * rows.width + j] * u[i];
    }
  }
};

/// Computes y.
template <class T, class Places, int V>
struct ConvForward {
  ConvSums<T, Places> sums;
  bool silu;
  T* y;

  __device__ void operator()(std::int64_t row, int item) const {
    const ConvRows<T>& rows = sums.rows;
    const int channel = item * V;
    float value[V];
    sums.sum(sums.places.place(row), channel, value);
    if (silu) {
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) value[i] *= element::sigmoid(value[i]);
    }
    if (rows.gated) {
      float gate[V];
      load_floats(rows.x + row * rows.stride() + rows.channels + channel, gate);
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) value[i] *= gate[i];
    }
    store_floats(y + row * rows.channels + channel, value);
  }
};

/// Computes dsum, and dout_gate unless dx is null.
template <class T, int V>
struct ConvBackward {
  ConvSums<T, ConvSamples> sums;
  bool silu;
  const T* dy;
  float* dsum;  // (M, N)
  T* dx;

  __device__ void operator()(std::int64_t row, int item) const {
    const ConvRows<T>& rows = sums.rows;
    const int channel = item * V;
    float value[V];
    float slope[V];
    float d[V];
    sums.sum(sums.places.place(row), channel, value);
    load_floats(dy + row * rows.channels + channel, d);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) {
      const float s = silu ? element::sigmoid(value[i]) : 1.0F;
      slope[i] = silu ? s * (1.0F + value[i] * (1.0F - s)) : 1.0F;
      value[i] *= s;
    }
    if (rows.gated) {
      const std::int64_t place = row * rows.stride() + rows.channels + channel;
      float gate[V];
      load_floats(rows.x + place, gate);
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) {
        value[i] *= d[i];
        d[i] *= gate[i];
      }
      if (dx != nullptr) store_floats(dx + place, value);
    }
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) d[i] *= slope[i];
    store_floats(dsum + row * rows.channels + channel, d);
  }
};

/// Computes the gradients of the rows that results read: rows [0, B) before x, then x's.
template <class T, int V>
struct ConvInputBackward {
  ConvRows<T> rows;
  ConvSamples samples;
  const float* weight;
  const float* dsum;   // (count, N)
  std::int64_t count;  // M
  T* dx;               // or null
  T* dbefore;          // or null

  __device__ void operator()(std::int64_t row, int item) const {
    const int channel = item * V;
    const std::int64_t own = row - samples.before;  // the row of x
    T* to = own < 0 ? dbefore : dx;
    if (to == nullptr) return;
    const std::int64_t number = samples.first + own;
    const std::int64_t end = samples.offsets[samples.sample_of(number) + 1] - samples.first;
    float du[V] = {};
    for (int j = rows.width - 1; j >= 0; --j) {
      const std::int64_t at = own + (rows.width - 1 - j) * rows.dilation;
      if (at < 0 || at >= end || at >= count) continue;
      float d[V];
      load_floats(dsum + at * rows.channels + channel, d);
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) du[i] += weight[(channel + i) * rows.width + j] * d[i];
    }
    const int stride = own < 0 ? rows.read() : rows.stride();
    const std::int64_t start = (own < 0 ? row : own) * stride;
    const T* from = (own < 0 ? rows.earlier : rows.x) + start;
    to += start;
    if (rows.gated) {
      float value[V];
      float gate[V];
      load_floats(from + stride - rows.channels + channel, value);
      load_floats(from + channel, gate);
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) {
        value[i] *= du[i];
        du[i] *= gate[i];
      }
      store_floats(to + channel, value);
    }
    store_floats(to + stride - rows.channels + channel, du);
  }
};

/// dsum u for a filter's weight: a source of columns (ColumnSumCall), channel by channel.
template <class T>
struct ConvProducts {
  ConvRows<T> rows;
  ConvSamples samples;
  const float* dsum;  // (M, N)

  template <int V>
  __device__ __forceinline__ void load(std::int64_t row, int column, float (&to)[V]) const {
    const ConvPlace at = samples.place(row);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) {
      const int channel = (column + i) / rows.width;
      const int j = (column + i) % rows.width;
      const std::int64_t number = at.number - (rows.width - 1 - j) * rows.dilation;
      float u[1] = {};
      if (number >= at.sample) rows.load(samples, at, number, channel, u);
      to[i] = dsum[row * rows.channels + channel] * u[0];
    }
  }
};

/// Copies to tails what later rows read.
template <class T, int V>
struct ConvTailRows {
  ConvRows<T> rows;
  ConvTails tails;
  std::int64_t first;  // first row of x to copy
  T* tail;

  __device__ void operator()(std::int64_t index, int item) const {
    const std::int64_t row = first + index;
    const ConvPlace at = tails.place(row);
    const int column = item * V;
    const int from = column < rows.channels || !rows.gated ? column : column + rows.channels;
    float value[V];
    load_floats(rows.x + row * rows.stride() + from, value);
    store_floats(tail + tails.earlier(at, at.number) * rows.read() + column, value);
  }
};

}  // namespace maestro::cuda
