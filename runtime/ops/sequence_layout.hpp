// SPDX-License-Identifier: Apache-2.0
// Where packed sequences lie among a micro-batch's rows, and in caches. A part of operators.hpp, with its letters.
#pragma once

#include <cstdint>
#include <span>

namespace maestro {

/// Start of each packed sequence: S + 1 `offsets`, the last is M; `positions` (M, axes) count from 0 in each sequence.
struct SequenceLayout {
  std::span<const std::int32_t> offsets{};         ///< host
  std::span<const std::int32_t> positions{};       ///< memory() of the table
  std::span<const std::int32_t> device_offsets{};  ///< offsets in memory() of the table; empty if it is host memory
  /// End of the keys that a query of causal attention sees, counted from its sequence's first row (M): at least its own
  /// row and those before it, and as many as the rows before it see. Empty: no row after its own. memory() of the
  /// table.
  std::span<const std::int32_t> ends{};
  std::int64_t axes = 1;  ///< A: positions of a row, for rotary pairs that turn by several axes
  [[nodiscard]] std::int64_t sequences() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  [[nodiscard]] std::int64_t rows() const { return offsets.empty() ? 0 : offsets.back(); }
};

/// Where a sequence's rows lie in a cache of several sequences.
struct CachedSequence {
  std::int32_t begin = 0;  ///< the cache's row that holds the sequence's first row
  std::int32_t rows = 0;   ///< the sequence's rows so far
};

}  // namespace maestro
