// SPDX-License-Identifier: Apache-2.0
// The rows of a rank's experts. Without a group these are its routes' rows. In a group of g ranks each owns
// E / g of a layer's experts, in rank order: a rank sends the row of every route to the expert's owner and receives the
// result (Lepikhin et al. 2020, GShard). The ranks learn each other's counts of rows by a single gathering.
//
// An owner's rows are in the order (expert, source rank, row of the source). Ranks hold consecutive rows of a
// micro-batch in rank order, so an expert's rows have the order of the micro-batch, as without a group (MO-2, order of
// routes).
// In a dry pass each rank's routes are spread evenly over all experts (EM-3, even in dry passes).
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/ops/expert_functions.hpp"

namespace maestro {

/// Refers to the tape and the group. All ranks of the group call the same functions in the same order.
class ExpertRows {
 public:
  ExpertRows(Tape& tape, const Routes& routes, Communicator* group);

  /// Returns R', the rows of the rank's experts.
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Returns each expert's first row, (E / g + 1) i32; the last is R'.
  [[nodiscard]] const Tensor& offsets() const { return offsets_.tensor(); }
  /// Returns the rows' weights, (R', 1) f32.
  [[nodiscard]] const Tensor& weights() const {
    return group_ == nullptr ? routes_.weights.value() : weights_.tensor();
  }
  /// Returns the tokens' rows, from `values` (M, C): (R', C).
  [[nodiscard]] Block rows_of(const Tensor& values) const;
  /// Writes each token's sum of rows (R', C) act to `to` (M, C).
  void combine(const Block& rows, const Tensor& to) const;
  /// Adds the gradient of weights(), (R', 1) f32, to the routes'.
  void add_weight_gradient(const Block& dweights) const;

 private:
  /// Sets the blocks of sent and received rows from all ranks' counts (g, E).
  void plan(const std::vector<std::int64_t>& counts, std::int64_t experts);
  [[nodiscard]] std::vector<std::int64_t> counts_of_all(std::int64_t experts) const;
  /// Exchanges rows: own (R, C) -> (R', C), or back.
  [[nodiscard]] Block to_owners(const Tensor& own) const;
  [[nodiscard]] Block to_sources(const Tensor& received) const;

  Tape* tape_;
  Routes routes_;
  Communicator* group_;
  std::int64_t count_ = 0;
  Block offsets_;
  Block weights_;                        // with a group
  std::vector<BlockTransfer> own_;       // this rank's routes by owner, in tensors (R, C); columns are not set
  std::vector<BlockTransfer> received_;  // this rank's experts by source, in tensors (R', C)
};

}  // namespace maestro
