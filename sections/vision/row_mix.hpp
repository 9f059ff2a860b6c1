// SPDX-License-Identifier: Apache-2.0
// Rows that are weighted sums of other rows, and of a learned row: y[i] = sum over k of weights[i, k] x[sources[i, k]],
// a source of -1 being the learned row. LLaVA-OneVision arranges the features of an image's tiles in this way.
//
// MX-1 (one sample): sources count from the first row of the sample. A source outside of the sample, and a learned
// row
//       with another weight than 1, are refused with the sample's number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/images/mixed_rows.hpp"
#include "sections/section.hpp"

namespace maestro {

inline constexpr std::int64_t row_mix_terms = mixed_terms;  ///< columns per port

/// Terms of sums of rows, with weights that are not 0, by target.
struct WeightedRows {
  std::vector<std::int32_t> sources;
  std::vector<float> weights;
  std::vector<std::int32_t> targets;
};

/// Returns the terms of some targets, which then count from the first of them.
[[nodiscard]] WeightedRows of_targets(const WeightedRows& mix, const RowRange& targets);

/// The terms of some rows.
struct RowMix : WeightedRows {        // sources in x, targets in y
  std::vector<std::int32_t> learned;  ///< for each row: 0 for the learned row, -1 without it
};

/// Reads the host values of ports "sources" (V, 4) i32 and "weights" (V, 4) f32 for the rows `own` of the visual axis;
/// x has the rows of the patches axis. Throws JobError, which begins with the section's name, for MX-1.
[[nodiscard]] RowMix read_row_mix(const std::string& section, const Inputs& inputs, const RowRange& own);

/// Returns y (rows, C) f32 from x (P, C) act and `learned` (1, C).
[[nodiscard]] Var mixed(Tape& tape, const Var& x, Parameter& learned, const RowMix& mix);
/// Returns x (P, C) f32 plus the sums of the table's rows, (entries, C).
[[nodiscard]] Var plus_entries(Tape& tape, const Var& x, Parameter& table, const WeightedRows& mix);

}  // namespace maestro
