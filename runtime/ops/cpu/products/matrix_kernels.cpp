// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/products/matrix_kernels.hpp"

#include <utility>

#include "runtime/ops/cpu/storage.hpp"
#include "runtime/ops/cpu/vector_math.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

MAESTRO_INLINE float widened(float value) {
  return value;
}
MAESTRO_INLINE float widened(std::uint16_t bits) {
  return from_bf16(bits);
}

template <class T>
void transpose_part(const TransposeCall& call, const T* from, std::int64_t first_row, std::int64_t first_column) {
  for (std::int64_t i = first_row; i < call.rows; ++i) {
    for (std::int64_t j = first_column; j < call.columns; ++j) {
      call.to[j * call.to_stride + i] = widened(from[i * call.from_stride + j]);
    }
  }
}

template <class T>
void transpose_whole(const TransposeCall& call, const T* from, std::int64_t row, std::int64_t column) {
  Vec square[vector_width];
  for (int i = 0; i < vector_width; ++i) square[i] = load(from + (row + i) * call.from_stride + column);
  transpose(square);
  for (int i = 0; i < vector_width; ++i) store(call.to + (column + i) * call.to_stride + row, square[i]);
}

void transpose_matrix(const TransposeCall& call) {
  const std::int64_t whole_rows = call.rows / vector_width * vector_width;
  const std::int64_t whole_columns = call.columns / vector_width * vector_width;
  typed(call.from, [&](const auto* from) {
    for (std::int64_t column = 0; column < whole_columns; column += vector_width) {
      for (std::int64_t row = 0; row < whole_rows; row += vector_width) transpose_whole(call, from, row, column);
    }
    transpose_part(call, from, 0, whole_columns);
    if (whole_rows < call.rows) transpose_part(call, from, whole_rows, 0);
  });
}

struct Identity {
  MAESTRO_INLINE static Vec value(Vec x) { return x; }
};

template <bool Bias, class Activation, bool Accumulate, class T>
void finish_rows(const EpilogueCall& call, T* to) {
  for (std::int64_t row = 0; row < call.rows; ++row) {
    const float* from = call.from + row * call.from_stride;
    T* out = to + row * call.to_stride;
    const float* bias = call.bias;
    for_vectors(call.columns, [=](std::int64_t i, auto part) {
      Vec value = part.load(from + i);
      if constexpr (Bias) value += part.load(bias + i);
      value = Activation::value(value);
      if constexpr (Accumulate) value += part.load(out + i);
      part.store(out + i, value);
    });
  }
}

template <bool Bias, class T>
void choose_activation(const EpilogueCall& call, T* to) {
  if (call.activation) {
    return element::with_gelu<VectorMath>(*call.activation,
                                          [&](auto form) { finish_rows<Bias, decltype(form), false>(call, to); });
  }
  if (call.accumulate) return finish_rows<Bias, Identity, true>(call, to);
  finish_rows<Bias, Identity, false>(call, to);
}

void epilogue(const EpilogueCall& call) {
  typed(call.to, [&](auto* to) {
    if (call.bias != nullptr) return choose_activation<true>(call, to);
    choose_activation<false>(call, to);
  });
}

/// Processes a strip of up to four vectors of columns, so that its sums stay in registers over all rows.
template <int Vectors, class T>
void sum_strip(const T* x, std::int64_t rows, std::int64_t stride, float* sums) {
  Vec total[Vectors];
  for (int v = 0; v < Vectors; ++v) total[v] = load(sums + v * vector_width);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int v = 0; v < Vectors; ++v) total[v] += load(x + row * stride + v * vector_width);
  }
  for (int v = 0; v < Vectors; ++v) store(sums + v * vector_width, total[v]);
}

template <class T>
void sum_last_columns(const T* x, std::int64_t rows, std::int64_t stride, std::int64_t count, float* sums) {
  Vec total = load_part(sums, count);
  for (std::int64_t row = 0; row < rows; ++row) total += load_part(x + row * stride, count);
  store_part(sums, total, count);
}

void add_column_sums(In x, std::int64_t rows, std::int64_t columns, float* sums) {
  typed(x, [&](const auto* in) {
    std::int64_t column = 0;
    for (; column + 4 * vector_width <= columns; column += 4 * vector_width) {
      sum_strip<4>(in + column, rows, columns, sums + column);
    }
    for (; column + vector_width <= columns; column += vector_width) {
      sum_strip<1>(in + column, rows, columns, sums + column);
    }
    if (column < columns) sum_last_columns(in + column, rows, columns, columns - column, sums + column);
  });
}

/// Rows for which a vector of weights is loaded once: as many as there are registers for their sums.
constexpr int rows_at_once = vector_width >= 16 ? 4 : 2;

template <int Number>
struct Rows {
  static constexpr int count = Number;
};

/// Calls body(first row, Rows) for `count` rows, most of them `rows_at_once` at a time.
template <class Body>
MAESTRO_INLINE void for_few_rows(std::int64_t count, Body body) {
  std::int64_t row = 0;
  for (; row + rows_at_once <= count; row += rows_at_once) body(row, Rows<rows_at_once>());
  for (; row < count; ++row) body(row, Rows<1>());
}

/// Multiplies `Count` rows by a block: each word of it holds two weights of a column, for two neighbours in a row.
template <int Count>
MAESTRO_INLINE void multiply_block(const RowProductCall& call, const float* rows, const std::uint16_t* weights,
                                   float* to) {
  constexpr int vectors = bf16_block_columns / vector_width;
  Vec sums[Count][vectors] = {};
  const auto add_pair = [&](std::int64_t at, bool whole) {
    for (int v = 0; v < vectors; ++v) {
      IVec words;
      __builtin_memcpy(&words, weights + (at * bf16_block_columns + 2 * v * vector_width), sizeof words);
      const Vec even = bits_to_float(words << 16);
      const Vec odd = bits_to_float(words & static_cast<std::int32_t>(0xffff0000U));
      for (int r = 0; r < Count; ++r) {
        sums[r][v] += even * rows[r * call.depth + at];
        sums[r][v] += odd * (whole ? rows[r * call.depth + at + 1] : 0.0F);
      }
    }
  };
  std::int64_t at = 0;
  for (; at + 2 <= call.depth; at += 2) add_pair(at, true);
  if (at < call.depth) add_pair(at, false);
  const std::int64_t stride = call.block_count * bf16_block_columns;
  for (int r = 0; r < Count; ++r) {
    for (int v = 0; v < vectors; ++v) store(to + r * stride + v * vector_width, sums[r][v]);
  }
}

void row_product(const RowProductCall& call) {
  const std::int64_t padded = (call.depth + bf16_block_depth - 1) / bf16_block_depth * bf16_block_depth;
  const std::int64_t stride = call.block_count * bf16_block_columns;
  for (std::int64_t block = 0; block < call.block_count; ++block) {
    const std::uint16_t* weights = call.blocks + block * padded * bf16_block_columns;
    float* to = call.to + block * bf16_block_columns;
    for_few_rows(call.row_count, [&](std::int64_t row, auto rows) {
      multiply_block<decltype(rows)::count>(call, call.rows + row * call.depth, weights, to + row * stride);
    });
  }
}

constexpr int weights_at_once = 8;  // of row_dots

/// Computes the dot products of `Count` rows with `Weights` weights, so that each vector is loaded once for all of
/// them.
template <int Count, int Weights, class W>
MAESTRO_INLINE void dots(const RowDotsCall& call, const float* rows, const W* weights, float* to) {
  Vec sums[Count][Weights] = {};
  for_vectors(call.depth, [&](std::int64_t i, auto part) {
    Vec x[Count];
    for (int r = 0; r < Count; ++r) x[r] = part.load(rows + r * call.row_stride + i);
    for (int n = 0; n < Weights; ++n) {
      // With several rows there is enough arithmetic to hide the loads of the next weights.
      if (Count > 1) __builtin_prefetch(weights + (n + weights_at_once) * call.stride + i);
      const Vec weight = part.load(weights + n * call.stride + i);
      for (int r = 0; r < Count; ++r) sums[r][n] += weight * x[r];
    }
  });
  for (int r = 0; r < Count; ++r) {
    for (int n = 0; n < Weights; ++n) to[r * call.count + n] = reduce_sum(sums[r][n]);
  }
}

void row_dots(const RowDotsCall& call) {
  typed(call.weights, [&](const auto* weights) {
    std::int64_t n = 0;
    for (; n + weights_at_once <= call.count; n += weights_at_once) {
      for_few_rows(call.row_count, [&](std::int64_t row, auto rows) {
        constexpr int together = decltype(rows)::count;
        constexpr int part = together == 1 ? weights_at_once : weights_at_once / 2;
        for (std::int64_t i = n; i < n + weights_at_once; i += part) {
          dots<together, part>(call, call.rows + row * call.row_stride, weights + i * call.stride,
                               call.to + row * call.count + i);
        }
      });
    }
    for (; n < call.count; ++n) {
      for (std::int64_t row = 0; row < call.row_count; ++row) {
        dots<1, 1>(call, call.rows + row * call.row_stride, weights + n * call.stride, call.to + row * call.count + n);
      }
    }
  });
}

using ByteVec = std::uint8_t __attribute__((vector_size(vector_width)));

/// Returns the halves of the first bytes, the low half of each first.
template <std::int32_t... lane>
struct Halves {
  MAESTRO_INLINE static UVec of(const std::uint8_t* bytes) {
    ByteVec both{};
    __builtin_memcpy(&both, bytes, vector_width / 2);
    const UVec doubled = __builtin_convertvector(__builtin_shufflevector(both, both, (lane / 2)...), UVec);
    return (doubled >> UVec{(lane % 2 * 4U)...}) & 15U;
  }
};
template <std::int32_t... lane>
Halves<lane...> halves_of(std::integer_sequence<std::int32_t, lane...>);
using AllHalves = decltype(halves_of(std::make_integer_sequence<std::int32_t, vector_width>()));

void widen_blocks(const WidenBlocksCall& call) {
  float* to = call.to;
  for (std::int64_t block = 0; block < call.count; ++block) {
    const std::uint32_t scale = call.scales[block], bits = scale << 23;
    float factor;
    __builtin_memcpy(&factor, &bits, sizeof factor);
    const std::uint8_t* bytes = call.blocks + block * 16;
    for (int first = 0; first < 32; first += vector_width, to += vector_width) {
      // A half is a sign, two bits of exponent and one of the fraction; 0 and 1 are 0 and 0.5.
      const UVec half = AllHalves::of(bytes + first / 2), size = half & 7U;
      const IVec small = reinterpret_cast<IVec>(size) < 2;
      const Vec few = 0.5F * __builtin_convertvector(reinterpret_cast<IVec>(size), Vec);
      const Vec usual = reinterpret_cast<Vec>((size << 22) + (126U << 23));
      const UVec value = reinterpret_cast<UVec>(select(small, few, usual)) | ((half & 8U) << 28);
      store(to, reinterpret_cast<Vec>(value) * factor);
    }
  }
}

}  // namespace

const MatrixKernels matrix_kernels = {transpose_matrix, epilogue, add_column_sums, row_product, row_dots, widen_blocks};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
