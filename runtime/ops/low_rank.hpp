// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters of matrix products (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"):
//   y = x w^T + bias + scale x a^T b^T
//
// A weight may hold the matrices of several modules, one above the other, such as [query | key | value]. Each has an a
// and a b of its own; their a are a single parameter, and so are their b. The product with b is that with a matrix of
// blocks, (N, n r), which is zero but for the block of each module.
//
// LO-1 (weights as they are): a product with an adapter needs nothing of its weight but the packed forms, so that the
//       weight may be frozen (Parameters::freeze_packed).
// LO-2 (parts add up): over a tensor group the results of ranks are those of a single rank in parts. The weight's rows
//       cut: b is cut alike, a is on every rank. Its columns cut: a is cut alike, b is on every rank, and the products
//       of the ranks add up. A gradient of what is on every rank is the rank's share of a sum (Parameters).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/ops/functions.hpp"

namespace maestro {

/// The adapter of a weight (N, K) with the matrices of n modules. Not thread-safe: of a single device thread.
class LowRank {
 public:
  struct Parts {
    Parameter* a = nullptr;          ///< (n r, K)
    Parameter* b = nullptr;          ///< (N, r)
    std::vector<std::int64_t> rows;  ///< of each module, as far as they are on this rank; N in all
    double scale = 1;
  };
  explicit LowRank(Parts parts);

  /// Returns y + scale x a^T b^T, (M, N) act, in the memory of y, a product of x (M, K) act whose values are not used
  /// again.
  Var added(Tape& tape, const Var& y, const Var& x);

 private:
  /// The matrix of blocks, and its packed form for `use`. Both stay as long as calls may refer to them.
  struct Wide {
    Block memory;
    const PackedWeight* packed = nullptr;
  };
  Wide wide(Tape& tape, const Block& places, PackFor use);
  void backward(Tape& tape, const Var& u, const Block& dy);

  Parts parts_;
  std::vector<std::int32_t> places_;  // (N n): the row of b that a piece of r columns is, -1: zeros
  std::unique_ptr<PackedWeight> packs_[2];
};

}  // namespace maestro
