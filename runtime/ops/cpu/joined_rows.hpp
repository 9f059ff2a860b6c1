// SPDX-License-Identifier: Apache-2.0
// Exchange of row states within a vocabulary group: after each rank has scanned its tokens of a block of rows, the
// ranks combine their states. A working part of LossBlock (distillation_block.hpp).
#pragma once

#include <cstdint>
#include <span>

#include "runtime/collective/communicator.hpp"
#include "runtime/ops/cpu/losses/distillation_row.hpp"
#include "runtime/ops/cpu/scratch.hpp"

namespace maestro::cpu {

/// Combines the row states that each rank computed from its tokens into the states of the full vocabulary, with the
/// same bits on every rank, so that all ranks continue equally. Without a group the states are already complete and the
/// calls do nothing.
class JoinedRows {
 public:
  struct Size {
    std::int64_t rows = 0;     ///< rows of a block, at most
    std::int64_t support = 0;  ///< support tokens of a row, at most
    bool rest = false;         ///< some rank has columns of the rest
  };
  struct Tokens {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  JoinedRows() = default;
  /// `own`: the shared tokens that this rank scans. `group` may be null. `loss` must outlive this.
  JoinedRows(Communicator* group, const RowLoss& loss, Tokens own, Size size, ScratchPool::Lease& lease);

  /// Called after RowLoss::scan() of all the rank's segments and before normalise(). Runs two collectives.
  void join_scans(std::span<RowState> rows) const;
  /// Called after RowLoss::mix() of all the rank's segments and before finish(). Runs a single collective.
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
