// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters of matrix products (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"):
//   y = x w^T + bias + scale x a^T b^T
//
// A weight may hold the matrices of several modules, one above the other, such as [query | key | value]. Each has a
// separate a and b; all a are a single parameter, and so are all b. The product with b uses a block matrix (N, n r),
// which is zero outside the block of each module.
//
// LO-1 (weights as they are): a product with an adapter needs nothing of its weight but the packed forms, so that the
//       weight may be frozen (Parameters::freeze_packed).
// LO-2 (parts add up): over a tensor group the ranks' results are a single rank's result in parts. The weight's rows
//       cut: b is cut alike, a is on every rank. Its columns cut: a is cut alike, b is on every rank, and the products
//       of the ranks add up. A gradient of what is on every rank is the rank's share of a sum (Parameters).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/ops/functions.hpp"

namespace maestro {

/// The adapter of a weight (N, K) that holds the matrices of n modules. Not thread-safe: used by a single device
/// thread.
class LowRank {
 public:
  struct Parts {
    Parameter* a = nullptr;          ///< (n r, K)
    Parameter* b = nullptr;          ///< (N, r)
    std::vector<std::int64_t> rows;  ///< rows of each module on this rank; N in all
    double scale = 1;
  };
  explicit LowRank(Parts parts);

  /// Returns y + scale x a^T b^T, (M, N) act, in the memory of y, a product of x (M, K) act whose values are not used
  /// again.
  Var added(Tape& tape, const Var& y, const Var& x);

 private:
  /// The block matrix, and its packed form for `use`. Both live as long as calls may refer to them.
  struct Wide {
    Block memory;
    const PackedWeight* packed = nullptr;
  };
  Wide wide(Tape& tape, const Block& places, PackFor use);
  void backward(Tape& tape, const Var& u, const Block& dy);

  Parts parts_;
  std::vector<std::int32_t> places_;  // (N n): row of b for a piece of r columns; -1: zeros
  std::unique_ptr<PackedWeight> packs_[2];
};

}  // namespace maestro
