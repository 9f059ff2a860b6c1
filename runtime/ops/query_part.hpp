// SPDX-License-Identifier: Apache-2.0
// Division of attention's queries over ranks that have the same heads, for hosts and for a device's threads. A part of
// operators.hpp.
#pragma once

#include <cstdint>

#include "runtime/ops/element_math.hpp"

namespace maestro {

/// A part of the queries in packed sequences.
struct QueryPart {
  std::int64_t part = 0;
  std::int64_t parts = 1;
};

/// A part's tiles of a sequence, whose rows count from 0. In each round every part gets a tile, in an order that
/// alternates between rounds and begins with another part in the next sequence: so the parts have nearly equal work,
/// under a causal mask too. Tiles of a long sequence are larger, so that it has few.
struct QueryTiles {
  static constexpr std::int64_t unit = 64;    ///< rows of the smallest tile; others are multiples
  static constexpr std::int64_t rounds = 16;  ///< most rounds
  std::int64_t rows;                          ///< rows of a tile; the last may have fewer
  std::int64_t parts;
  std::int64_t turn;  ///< tiles before the part's in even rounds

  MAESTRO_HD QueryTiles(const QueryPart& of, std::int64_t sequence, std::int64_t length)
      : rows(unit), parts(of.parts), turn((of.part + of.parts - sequence % of.parts) % of.parts) {
    const std::int64_t of_units = rounds * parts * unit;
    if (length > of_units) rows *= (length + of_units - 1) / of_units;
  }
  /// Returns the number of the part's tile in a round.
  [[nodiscard]] MAESTRO_HD std::int64_t tile(std::int64_t round) const {
    return round * parts + (round % 2 == 0 ? turn : parts - 1 - turn);
  }
  /// Returns the first row of that tile, which may lie after the sequence.
  [[nodiscard]] MAESTRO_HD std::int64_t first_row(std::int64_t round) const { return tile(round) * rows; }
  /// Returns whether the part has a row.
  [[nodiscard]] MAESTRO_HD bool has(std::int64_t row) const {
    const std::int64_t number = row / rows;
    return tile(number / parts) == number;
  }
  /// Returns the row at a place, a number of the part's rows; as many come before it.
  [[nodiscard]] MAESTRO_HD std::int64_t row_at(std::int64_t place) const {
    return first_row(place / rows) + place % rows;
  }
  /// Returns how many of the part's rows come before a row.
  [[nodiscard]] MAESTRO_HD std::int64_t place_of(std::int64_t row) const {
    const std::int64_t number = row / rows, round = number / parts, own = tile(round);
    if (own == number) return round * rows + row % rows;
    return (own < number ? round + 1 : round) * rows;
  }
};

}  // namespace maestro
