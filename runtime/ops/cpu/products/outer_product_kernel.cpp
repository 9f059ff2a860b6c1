// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/products/outer_product_kernel.hpp"

#include "runtime/ops/cpu/bf16_pairs.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

constexpr std::int64_t tile_rows = 8;  // with 3 vectors of columns, sums hide two units' latency and fit registers
constexpr std::int64_t columns = outer_product_columns;

inline std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

/// Rows [first, first + rows) of the operands, in `depth` pairs.
struct RowRange {
  std::int64_t first;
  std::int64_t rows;
  std::int64_t depth;
};

/// Reads pairs of rows [2 pair, 2 pair + 2) of the range, columns [at, at + 16); zero outside.
MAESTRO_INLINE Vec read_pairs(const std::uint16_t* base, std::int64_t stride, const RowRange& range, std::int64_t pair,
                              std::int64_t at, std::int64_t end) {
  const std::uint16_t* even = base + (range.first + 2 * pair) * stride + at;
  const bool last = 2 * pair + 1 == range.rows;
  return pairs_of(first_elements(even, end - at), first_elements(last ? even : even + stride, last ? 0 : end - at));
}

/// Arranges x as [K / columns][pair][column].
void arrange_x(const OuterProductCall& call, const RowRange& range) {
  for (std::int64_t first = 0; first < call.k; first += columns) {
    float* to = call.x_pairs + first * range.depth;
    for (std::int64_t pair = 0; pair < range.depth; ++pair, to += columns) {
      for (std::int64_t at = 0; at < columns && first + at < call.k; at += vector_width) {
        store(to + at, read_pairs(call.x, call.x_stride, range, pair, first + at, call.k));
      }
    }
  }
}

/// Arranges columns [first, end) of dy as [column / tile_rows][pair][tile_rows].
void arrange_dy(const OuterProductCall& call, const RowRange& range, std::int64_t first, std::int64_t end) {
  for (std::int64_t at = first; at < end; at += vector_width) {
    float* to = call.dy_pairs + (at - first) * range.depth;
    for (std::int64_t pair = 0; pair < range.depth; ++pair, to += tile_rows) {
      const Vec both = read_pairs(call.dy, call.dy_stride, range, pair, at, end);
      __builtin_memcpy(to, &both, sizeof both / 2);
      __builtin_memcpy(to + tile_rows * range.depth, reinterpret_cast<const char*>(&both) + sizeof both / 2,
                       sizeof both / 2);
    }
  }
}

/// A tile of dw: at most tile_rows rows of at most `columns` columns.
struct Tile {
  float* dw;
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t columns;
};

template <int Vectors>
void add_tile(const float* dy, const float* x, std::int64_t depth, const Tile& tile) {
  Vec sum[tile_rows][Vectors] = {};
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    for (int v = 0; v < Vectors; ++v) __builtin_prefetch(tile.dw + r * tile.stride + v * vector_width, 1);
  }
  do {
    Vec row[Vectors];
    for (int v = 0; v < Vectors; ++v) row[v] = load(x + v * vector_width);
    for (int r = 0; r < tile_rows; ++r) {
      for (int v = 0; v < Vectors; ++v) sum[r][v] = add_pair_products(sum[r][v], dy + r, row[v]);
    }
    dy += tile_rows;
    x += columns;
  } while (--depth > 0);
  for (int r = 0; r < tile_rows; ++r) {
    if (r == tile.rows) break;
    for (int v = 0; v < Vectors; ++v) {
      float* to = tile.dw + r * tile.stride + v * vector_width;
      write_sums(to, sum[r][v], tile.columns - v * vector_width, true);
    }
  }
}

/// Adds rows [first, end) of dw.
void add_rows(const OuterProductCall& call, const RowRange& range, std::int64_t first, std::int64_t end) {
  arrange_dy(call, range, first, end);
  for (std::int64_t column = 0; column < call.k; column += columns) {
    const float* x = call.x_pairs + column * range.depth;
    for (std::int64_t n = first; n < end; n += tile_rows) {
      const float* dy = call.dy_pairs + (n - first) * range.depth;
      const Tile tile{call.dw + n * call.k + column, call.k, smaller(tile_rows, end - n),
                      smaller(columns, call.k - column)};
      if (tile.columns > 2 * vector_width) {
        add_tile<3>(dy, x, range.depth, tile);
      } else if (tile.columns > vector_width) {
        add_tile<2>(dy, x, range.depth, tile);
      } else {
        add_tile<1>(dy, x, range.depth, tile);
      }
    }
  }
}

}  // namespace

void add_outer_products(const OuterProductCall& call) {
  for (std::int64_t first = 0; first < call.rows; first += outer_product_rows) {
    const std::int64_t rows = smaller(outer_product_rows, call.rows - first);
    const RowRange range{first, rows, (rows + 1) / 2};
    arrange_x(call, range);
    for (std::int64_t n = 0; n < call.n; n += outer_product_block) {
      add_rows(call, range, n, smaller(n + outer_product_block, call.n));
    }
  }
}

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
