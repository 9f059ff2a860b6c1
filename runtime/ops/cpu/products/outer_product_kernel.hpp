// SPDX-License-Identifier: Apache-2.0
// The sum of outer products of bf16 rows by AVX512_BF16's dot products: a weight's gradient. oneDNN 2.6 arranges x anew
// for each part of dw, which takes a third of the time where dw leaves the caches.
#pragma once

#include <cstdint>

namespace maestro::cpu {

/// Rows that are summed before dw is read and written. Scratch grows with them; sums have the order of oneDNN's
/// products of 512 rows, and so the same bits.
inline constexpr std::int64_t outer_product_rows = 512;

/// Computes dw (N, K) f32 += dy (M, N)^T x (M, K); strides in elements.
struct OuterProductCall {
  const std::uint16_t* dy;
  std::int64_t dy_stride;
  const std::uint16_t* x;
  std::int64_t x_stride;
  float* dw;          ///< rows are K apart
  std::int64_t rows;  ///< M
  std::int64_t n;
  std::int64_t k;
  float* dy_pairs;  ///< outer_product_dy_floats
  float* x_pairs;   ///< outer_product_x_floats()
};

inline constexpr std::int64_t outer_product_block = 256;   // rows of dw, for which dy fits the second-level cache
inline constexpr std::int64_t outer_product_columns = 48;  // columns of dw that a tile computes
inline constexpr std::int64_t outer_product_dy_floats = outer_product_rows / 2 * outer_product_block;
[[nodiscard]] inline std::int64_t outer_product_x_floats(std::int64_t k) {
  return outer_product_rows / 2 * ((k + outer_product_columns - 1) / outer_product_columns * outer_product_columns);
}

namespace avx512_bf16 {
void add_outer_products(const OuterProductCall& call);
}

}  // namespace maestro::cpu
