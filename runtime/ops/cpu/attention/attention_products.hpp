// SPDX-License-Identifier: Apache-2.0
// The register-blocked product for attention: C (rows, vectors * width) (+)= A (rows, depth) B (depth, same columns). A
// is read word by word at any two strides (so A may be a transposed tile); rows of B and C are contiguous. A word is an
// f32; with bf16 dot products it is a pair of bf16 (bf16_pairs.hpp), so that the depth is half as long. Included by
// kernels that are compiled once per instruction set. Templates are static: otherwise every object would offer their
// mangled names to the linker.
#pragma once

#include <cstdint>

#include "runtime/ops/cpu/bf16_pairs.hpp"
#include "runtime/ops/cpu/vector_math.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {

#if defined(__AVX512BF16__)
inline constexpr std::int64_t word_elements = 2;
#else
inline constexpr std::int64_t word_elements = 1;  ///< elements of depth in a word
#endif

MAESTRO_INLINE Vec add_product(Vec sum, const float* a, Vec b) {
#if defined(__AVX512BF16__)
  return add_pair_products(sum, a, b);
#else
  return sum + broadcast(*a) * b;
#endif
}

/// Returns the words that hold `elements` elements.
[[nodiscard]] inline std::int64_t words_of(std::int64_t elements) {
  return (elements + word_elements - 1) / word_elements;
}

struct TileProduct {
  const float* a = nullptr;
  std::int64_t a_row = 0;   ///< distance between A's rows, in words as all distances of A and B
  std::int64_t a_step = 1;  ///< distance between A's words along depth
  const float* b = nullptr;
  std::int64_t b_step = 0;  ///< distance between B's rows
  float* c = nullptr;
  std::int64_t c_row = 0;
  std::int64_t rows = 0;
  std::int64_t vectors = 0;
  std::int64_t depth = 1;  ///< words, at least one
  bool accumulate = false;
  float factor = 1;  ///< multiplies the product; with bf16 dot products, if it does not accumulate
};

// Enough independent accumulators to cover the latency of two multiply-add units, few enough to stay in registers.
inline constexpr int tile_rows = vector_width == 16 ? 6 : 4;
inline constexpr int tile_vectors = vector_width == 16 ? 4 : 2;

/// `Accumulate` is `t.accumulate`: gcc 12 keeps sums in memory first if that is a variable.
template <int Rows, int Vectors, bool Accumulate>
static inline void register_tile(const TileProduct& t, const float* a, const float* b, float* c) {
  Vec sum[Rows][Vectors];
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) sum[r][v] = Accumulate ? load(c + r * t.c_row + v * vector_width) : Vec{};
  }
  std::int64_t k = 0;
  do {  // at least once: gcc 12 keeps a second copy of the sums in memory for a loop that may not run
    Vec row[Vectors];
    for (int v = 0; v < Vectors; ++v) row[v] = load(b + v * vector_width);
    for (int r = 0; r < Rows; ++r) {
      for (int v = 0; v < Vectors; ++v) sum[r][v] = add_product(sum[r][v], a + r * t.a_row, row[v]);
    }
    a += t.a_step;
    b += t.b_step;
  } while (++k < t.depth);
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      if constexpr (word_elements > 1 && !Accumulate) sum[r][v] *= broadcast(t.factor);
      store(c + r * t.c_row + v * vector_width, sum[r][v]);
    }
  }
}

template <int Vectors, bool Accumulate, int Rows>
static inline void last_rows(const TileProduct& t, std::int64_t rows, const float* a, const float* b, float* c) {
  if constexpr (Rows > 0) {
    if (rows == Rows) return register_tile<Rows, Vectors, Accumulate>(t, a, b, c);
    last_rows<Vectors, Accumulate, Rows - 1>(t, rows, a, b, c);
  }
}

template <int Vectors, bool Accumulate>
static inline void row_tiles(const TileProduct& t, const float* b, float* c) {
  std::int64_t r = 0;
  for (; r + tile_rows <= t.rows; r += tile_rows) {
    register_tile<tile_rows, Vectors, Accumulate>(t, t.a + r * t.a_row, b, c + r * t.c_row);
  }
  last_rows<Vectors, Accumulate, tile_rows - 1>(t, t.rows - r, t.a + r * t.a_row, b, c + r * t.c_row);
}

template <int Vectors>
static inline void column_panel(const TileProduct& t, const float* b, float* c) {
  t.accumulate ? row_tiles<Vectors, true>(t, b, c) : row_tiles<Vectors, false>(t, b, c);
}

template <int Vectors>
static inline void last_columns(const TileProduct& t, std::int64_t vectors, const float* b, float* c) {
  if constexpr (Vectors > 0) {
    if (vectors == Vectors) return column_panel<Vectors>(t, b, c);
    last_columns<Vectors - 1>(t, vectors, b, c);
  }
}

inline void multiply(const TileProduct& t) {
  std::int64_t v = 0;
  for (; v + tile_vectors <= t.vectors; v += tile_vectors) {
    column_panel<tile_vectors>(t, t.b + v * vector_width, t.c + v * vector_width);
  }
  last_columns<tile_vectors - 1>(t, t.vectors - v, t.b + v * vector_width, t.c + v * vector_width);
}

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
