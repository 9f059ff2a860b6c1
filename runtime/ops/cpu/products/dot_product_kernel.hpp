// SPDX-License-Identifier: Apache-2.0
// Products of bf16 rows and a plain bf16 weight by AVX512_BF16's dot products, a panel of columns at a time. A row's
// sums have the same order, and so the same bits, however many other rows there are.
#pragma once

#include <cstdint>

namespace maestro::cpu {

inline constexpr std::int64_t dot_panel_columns = 48;  ///< columns of a panel, at most

/// Arranges a panel of a product's right operand (depth, columns); strides in elements.
struct ArrangeCall {
  const std::uint16_t* weights;  ///< (columns, depth) if transposed, else (depth, columns)
  std::int64_t stride;
  bool transposed;  ///< the operand is the transpose of the weight
  std::int64_t depth;
  std::int64_t columns;
  float* panel;  ///< dot_panel_floats()
};
[[nodiscard]] inline std::int64_t dot_panel_floats(std::int64_t depth) {
  return (depth + 1) / 2 * dot_panel_columns;
}

/// Computes out (rows, columns) (+)= in (rows, depth) times an arranged panel.
struct PanelProductCall {
  const std::uint16_t* in;
  std::int64_t in_stride;
  std::int64_t rows;
  const float* panel;
  std::int64_t depth;
  std::int64_t columns;
  void* out;  ///< f32 or bf16
  std::int64_t out_stride;
  bool bf16;  ///< rounds sums to bf16; then it does not accumulate
  bool accumulate;
};

namespace avx512_bf16 {
void arrange_panel(const ArrangeCall& call);
void multiply_panel(const PanelProductCall& call);
}  // namespace avx512_bf16

}  // namespace maestro::cpu
