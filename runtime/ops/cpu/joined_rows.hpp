// SPDX-License-Identifier: Apache-2.0
// What the ranks of a vocabulary group tell each other of a block of rows, each having scanned its own tokens. A
// working part of LossBlock (distillation_block.hpp).
#pragma once

#include <cstdint>
#include <span>

#include "runtime/collective/communicator.hpp"
#include "runtime/ops/cpu/losses/distillation_row.hpp"
#include "runtime/ops/cpu/scratch.hpp"

namespace maestro::cpu {

/// Makes rows' states, as each rank has them from its own tokens, those of the whole vocabulary: the same bits on every
/// rank, so that all go on alike. Without a group the states are whole already and nothing is done.
class JoinedRows {
 public:
  struct Size {
    std::int64_t rows = 0;     ///< of a block, at most
    std::int64_t support = 0;  ///< support tokens of a row, at most
    bool rest = false;         ///< some rank has columns of the rest
  };
  struct Tokens {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  JoinedRows() = default;
  /// `own`: the shared tokens that this rank scans. `group` may be null; `loss` must outlive this.
  JoinedRows(Communicator* group, const RowLoss& loss, Tokens own, Size size, ScratchPool::Lease& lease);

  /// After RowLoss::scan() of all own segments, before normalise(). Two collectives.
  void join_scans(std::span<RowState> rows) const;
  /// After RowLoss::mix() of all own segments, before finish(). One collective.
  void join_mixtures(std::span<RowState> rows) const;

 private:
  void offer_scan(const RowState& row, float* to) const;
  void take_scan(RowState& row, const float* from) const;
  [[nodiscard]] std::int64_t values_of(const RowState& row) const;
  [[nodiscard]] bool owns(std::int32_t token) const { return token >= own_.first && token < own_.first + own_.count; }

  Communicator* group_ = nullptr;
  const RowLoss* loss_ = nullptr;
  Tokens own_;
  bool rest_ = false;
  float* values_ = nullptr;
};

}  // namespace maestro::cpu
