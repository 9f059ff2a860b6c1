// SPDX-License-Identifier: Apache-2.0
// Collectives among the ranks of a group. Every rank calls the same operations in the same order, each from its own
// device thread. Of a group of CPUs a call returns when this rank's result is whole and its arguments may be
// written again. Of a group of devices with memory of their own, where tensors and values lie, a call only queues: it
// is done in the order of the device's work, as an operator is, and Device::finish() tells when.
//
// CM-1: sums are formed in rank order, 0 + 1 + 2 + ..., in f32: results repeat bitwise, and every rank gets the same
//       bits.
// CM-2: after abort() every call on any rank of the group, running or to come, throws CommunicatorAborted; nothing
//       hangs on a rank that has failed. What a device has queued ends too, with results that mean nothing: whoever
//       learns that queued work is complete asks failure() before it uses them.
// CM-3: a group of one copies what has to be copied and never waits.
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

/// One block that goes to, or comes from, a rank of the group (itself included).
struct BlockTransfer {
  std::int64_t peer = 0;
  TensorBlock block;
};

/// Thread-safety: one thread per rank. Tensors are contiguous and row-major; blocks and parts may be empty.
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual std::int64_t rank() const = 0;

  /// `values` become the sum over ranks; the same length everywhere.
  virtual void all_reduce_sum(std::span<float> values) = 0;
  /// `values` become the maximum over ranks, elementwise.
  virtual void all_reduce_max(std::span<float> values) = 0;
  /// Rank r's `part` (rows_r, C), rows_r as rank_part() cuts whole's rows, becomes its rows of `whole` (M, C)
  /// everywhere. Any dtype, the same on all ranks. `part` may lie inside `whole` at its own place.
  virtual void all_gather_rows(const Tensor& part, const Tensor& whole) = 0;
  /// `part` (rows_r, C) of rank r becomes the sum over ranks of their `whole` (M, C) at the same rows as in
  /// all_gather_rows. f32 or bf16 (added in f32, rounded once). `part` lies outside `whole`.
  virtual void reduce_scatter_rows(const Tensor& whole, const Tensor& part) = 0;
  /// The shard_range() of this rank in `values` becomes the sum over ranks; the other values mean nothing afterwards.
  virtual void reduce_to_shards(std::span<float> values) = 0;
  /// Every rank's shard_range() of `values` becomes that of all.
  virtual void gather_shards(std::span<float> values) = 0;
  /// Blocks of `from` go to their peers' `to`: the k-th block that rank a sends to b fills the k-th block that b
  /// receives from a, of the same shape. Sends may overlap; receives overlap neither each other nor sends. Any dtype,
  /// the same on all ranks.
  virtual void exchange(const Tensor& from, std::span<const BlockTransfer> sends, const Tensor& to,
                        std::span<const BlockTransfer> receives) = 0;

  /// CM-2. Any thread; idempotent. `why` is told to the others.
  virtual void abort(const std::string& why) = 0;
  /// Why results mean nothing: the reason of abort(), or what the network has told; empty as long as all is well. Any
  /// thread.
  [[nodiscard]] virtual std::string failure() const = 0;
};

}  // namespace maestro
