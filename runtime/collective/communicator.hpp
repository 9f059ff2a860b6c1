// SPDX-License-Identifier: Apache-2.0
// Collectives among the ranks of a group. Every rank calls the same operations in the same order, each on its device's
// thread. In a group of CPUs a call returns when this rank's result is complete and its arguments may be written again.
// In a group of devices with separate memory, which holds the tensors and values, a call only queues: it runs in the
// order of the device's work, like an operator, and Device::finish() reports its completion.
//
// CM-1 (rank order): sums are formed in rank order, 0 + 1 + 2 + ..., in f32: results repeat bitwise, and every rank
//       gets the same bits.
// CM-2 (abort): after abort() every current and later call on any rank of the group throws CommunicatorAborted; no call
//       hangs on a rank that has failed. Work that a device has queued ends too, with invalid results: a thread that
//       sees queued work complete queries failure() before it uses them.
// CM-3 (single rank): in a group of one rank a call copies its data and never waits.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/core/tensor.hpp"

namespace maestro {

/// Another rank of the group has failed first.
class CommunicatorAborted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A rectangle of a two-dimensional tensor.
struct TensorBlock {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 0;
};

/// A block that is sent to or received from a rank of the group (itself included).
struct BlockTransfer {
  std::int64_t peer = 0;
  TensorBlock block;
};

/// Thread safety: a single thread per rank. Tensors are contiguous and row-major; blocks and parts may be empty.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual std::int64_t rank() const = 0;

  /// Replaces `values` by the sum over ranks; the same length everywhere.
  virtual void all_reduce_sum(std::span<float> values) = 0;
  /// Replaces `values` by the elementwise maximum over ranks.
  virtual void all_reduce_max(std::span<float> values) = 0;
  /// Copies rank r's `part` (rows_r, C) to its rows of the full tensor (M, C) on every rank; rank_part() divides the
  /// rows. Any dtype, the same on all ranks. `part` may be the rank's rows inside the full tensor.
  virtual void all_gather_rows(const Tensor& part, const Tensor& whole) = 0;
  /// Replaces `part` (rows_r, C) of rank r by the sum over the ranks' full tensors (M, C), at the same rows as in
  /// all_gather_rows. f32 or bf16 (added in f32, rounded once). The tensors do not overlap.
  virtual void reduce_scatter_rows(const Tensor& whole, const Tensor& part) = 0;
  /// Replaces the shard_range() of this rank in `values` by the sum over ranks; the other values are unspecified
  /// afterwards.
  virtual void reduce_to_shards(std::span<float> values) = 0;
  /// Copies every rank's shard_range() of `values` to all ranks.
  virtual void gather_shards(std::span<float> values) = 0;
  /// Copies blocks of `from` to their peers' `to`: the k-th block that rank a sends to b fills the k-th block that b
  /// receives from a, of the same shape. Sends may overlap; receives overlap neither each other nor sends. Any dtype,
  /// the same on all ranks.
  virtual void exchange(const Tensor& from, std::span<const BlockTransfer> sends, const Tensor& to,
                        std::span<const BlockTransfer> receives) = 0;

  /// Aborts the group (CM-2). Any thread; idempotent. The other ranks receive `why` in their exceptions.
  virtual void abort(const std::string& why) = 0;
  /// Returns why results are invalid: the reason of abort(), or a failure of the network; empty if there is none. Any
  /// thread.
  [[nodiscard]] virtual std::string failure() const = 0;
};

}  // namespace maestro
