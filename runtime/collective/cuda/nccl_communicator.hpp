// SPDX-License-Identifier: Apache-2.0
// A group of ranks over device memory, by NCCL. One rank per device; ranks may be threads of one process or of several.
//
// NC-1 (asynchronous): a call queues its work on the rank's stream, after the earlier work there, and never waits for
//       the device (NQ-1). The first call of a kind may take long: NCCL then connects the ranks.
// NC-2 (end together): ranks of the same process share an AbortReason and end together (CM-2, NQ-2). Ranks of
//       other processes end by calling abort(), or by an error of a peer that NCCL reports: failure() queries it.
// NC-3 (NCCL's order): CM-1 is weaker here: NCCL adds in another order, which its algorithm and the topology
//       decide. Every value is added once and copied, so that all ranks hold the same bits; runs of the same version,
//       devices and sizes repeat in practice, but NCCL does not guarantee it. bf16 is rounded at every hop, up to ranks
//       - 1 times. Two ranks in f32 produce the bits of rank order, because addition commutes.
// NC-4 (own side checked): a call checks its rank's side (side_violation()), and that rows are divided by
//       rank_part(). Other calls that do not fit together hang or mix data, as with NCCL itself, until abort().
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <span>
#include <string>
#include <vector>

#include "runtime/collective/collective_call.hpp"
#include "runtime/collective/communicator.hpp"
#include "runtime/collective/cuda/device_memory.hpp"
#include "runtime/collective/cuda/nccl_queue.hpp"

namespace maestro {

/// Returns the name of a new group, made by one rank and sent to all: plain bytes, which may go to other processes.
/// Throws std::runtime_error.
[[nodiscard]] ncclUniqueId make_nccl_id();

/// Tensors and values are in device memory that the rank's device can address, and stay until the work is complete.
/// Constructed, used and destroyed on the rank's thread; every call makes the rank's device current. Errors of CUDA and
/// NCCL throw std::runtime_error that names the call and the rank, invalid calls std::logic_error; both abort the
/// group.
class NcclCommunicator final : public Communicator {
 public:
  /// Waits for all ranks of the group. Throws std::runtime_error, and CommunicatorAborted while it waits.
  explicit NcclCommunicator(const NcclRank& rank) : queue_(rank) {}

  [[nodiscard]] std::int64_t size() const override { return queue_.rank().size; }
  [[nodiscard]] std::int64_t rank() const override { return queue_.rank().rank; }
  void all_reduce_sum(std::span<float> values) override;
  /// Treats NaN as NCCL's maximum does.
  void all_reduce_max(std::span<float> values) override;
  void all_gather_rows(const Tensor& part, const Tensor& whole) override;
  void reduce_scatter_rows(const Tensor& whole, const Tensor& part) override;
  void reduce_to_shards(std::span<float> values) override;
  void gather_shards(std::span<float> values) override;
  void exchange(const Tensor& from, std::span<const BlockTransfer> sends, const Tensor& to,
                std::span<const BlockTransfer> receives) override;
  void abort(const std::string& why) override { queue_.rank().abort->set(why); }
  /// Queries NCCL for errors that no call has reported, and aborts the group with them.
  [[nodiscard]] std::string failure() const override { return queue_.failure(); }

 private:
  /// A block as contiguous device memory: in the tensor, or in staging memory if it is a strided rectangle.
  struct Strip {
    int peer = 0;
    TensorBlock block;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    bool staged = false;
  };

  /// Checks and prepares a call; every call begins with it.
  void begin(const CollectiveCall& call);
  void all_reduce(std::span<float> values, CollectiveKind kind, ncclRedOp_t operation);
  /// Returns each rank's rows in the full tensor, checked for this rank's `part`.
  [[nodiscard]] std::vector<Tensor> places_of(const Tensor& part, const Tensor& whole, CollectiveKind kind);
  void gather_uneven(const Tensor& part, std::span<const Tensor> places);
  void reduce_uneven(const Tensor& part, std::span<const Tensor> places);
  /// Returns the shard of every rank.
  [[nodiscard]] std::vector<std::span<float>> shards_of(std::span<float> values) const;
  [[nodiscard]] std::vector<Strip> strips_of(const Tensor& tensor, std::span<const BlockTransfer> transfers,
                                             DeviceMemory& staging);
  void copy_own_blocks(const CollectiveCall& call);

  DeviceMemory outgoing_;  // strided rectangles on their way
  DeviceMemory incoming_;
  NcclQueue queue_;  // last: work that is queued ends before the memory
};

}  // namespace maestro
