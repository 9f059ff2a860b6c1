// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/products/dot_product_kernel.hpp"

#include "runtime/ops/cpu/bf16_pairs.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

constexpr std::int64_t columns_of_panel = dot_panel_columns;
constexpr std::int64_t tile_rows = 8;  // with 3 vectors of columns, sums hide two units' latency and fit registers

/// Arranges 16 columns from rows of the weight: words are transposed in squares.
void arrange_transposed(const ArrangeCall& call, std::int64_t first) {
  const std::int64_t words = (call.depth + 1) / 2;
  for (std::int64_t word = 0; word < words; word += vector_width) {
    const std::int64_t left = call.depth - 2 * word;
    const __mmask32 mask = left < 2 * vector_width ? (1U << left) - 1 : 0xffffffffU;
    Vec square[vector_width];
    for (std::int64_t i = 0; i < vector_width; ++i) {
      const bool exists = first + i < call.columns;
      const std::uint16_t* from = call.weights + (exists ? first + i : 0) * call.stride + 2 * word;
      square[i] = reinterpret_cast<Vec>(_mm512_maskz_loadu_epi16(exists ? mask : 0, from));
    }
    transpose(square);
    for (std::int64_t i = 0; i < vector_width && word + i < words; ++i) {
      store(call.panel + (word + i) * columns_of_panel + first, square[i]);
    }
  }
}

/// Arranges 16 columns of the weight: pairs of its rows.
void arrange_plain(const ArrangeCall& call, std::int64_t first) {
  float* to = call.panel + first;
  for (std::int64_t row = 0; row < call.depth; row += 2, to += columns_of_panel) {
    const std::uint16_t* even = call.weights + row * call.stride + first;
    const bool last = row + 1 == call.depth;
    store(to, pairs_of(first_elements(even, call.columns - first),
                       first_elements(last ? even : even + call.stride, last ? 0 : call.columns - first)));
  }
}

template <int Vectors>
void multiply_tile(const PanelProductCall& call, std::int64_t first) {
  const std::int64_t rows = call.rows - first < tile_rows ? call.rows - first : tile_rows;
  const float* in[tile_rows];  // rows past the end repeat the last row, and are not stored
  for (std::int64_t r = 0; r < tile_rows; ++r) {
    in[r] = reinterpret_cast<const float*>(call.in + (first + (r < rows ? r : rows - 1)) * call.in_stride);
  }
  Vec sum[tile_rows][Vectors] = {};
  const float* panel = call.panel;
  const auto add = [&](const auto& pair_of) {
    Vec row[Vectors];
    for (int v = 0; v < Vectors; ++v) row[v] = load(panel + v * vector_width);
    for (int r = 0; r < tile_rows; ++r) {
      const float* const pair = pair_of(r);
      for (int v = 0; v < Vectors; ++v) sum[r][v] = add_pair_products(sum[r][v], pair, row[v]);
    }
    panel += columns_of_panel;
  };
  for (std::int64_t word = 0; word < call.depth / 2; ++word) {
    add([&](int r) { return in[r] + word; });
  }
  if (call.depth % 2 != 0) {
    float last[tile_rows];  // pairs with a zero: the next element is another row's
    for (std::int64_t r = 0; r < tile_rows; ++r) {
      const std::uint32_t bits = reinterpret_cast<const std::uint16_t*>(in[r])[call.depth - 1];
      __builtin_memcpy(last + r, &bits, sizeof bits);
    }
    add([&](int r) { return last + r; });
  }
  for (int r = 0; r < tile_rows; ++r) {
    if (r == rows) break;
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t at = (first + r) * call.out_stride + v * vector_width;
      const std::int64_t count = call.columns - v * vector_width;
      if (call.bf16) {
        write_rounded(static_cast<std::uint16_t*>(call.out) + at, sum[r][v], count);
      } else {
        write_sums(static_cast<float*>(call.out) + at, sum[r][v], count, call.accumulate);
      }
    }
  }
}

}  // namespace

void arrange_panel(const ArrangeCall& call) {
  for (std::int64_t first = 0; first < call.columns; first += vector_width) {
    call.transposed ? arrange_transposed(call, first) : arrange_plain(call, first);
  }
}

void multiply_panel(const PanelProductCall& call) {
  for (std::int64_t first = 0; first < call.rows; first += tile_rows) {
    if (call.columns > 2 * vector_width) {
      multiply_tile<3>(call, first);
    } else if (call.columns > vector_width) {
      multiply_tile<2>(call, first);
    } else {
      multiply_tile<1>(call, first);
    }
  }
}

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
