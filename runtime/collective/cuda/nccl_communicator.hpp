// A group of ranks over device memory, by NCCL. One rank per device; ranks may be threads of one process or of several.
//
// NC-1: a call returns when its work on the rank's stream is done; what was put on the stream before it is seen. While
//       it waits it looks for abort() and for NCCL's own asynchronous errors.
// NC-2: only the rank's thread touches its NCCL communicator, which never blocks; abort() gives the reason, and each
//       rank ends its own communicator when it sees it, in a call or at the next one. Ranks that share an AbortReason,
//       those of one process, keep CM-2 so. Ranks of other processes are told by their own abort(), or learn of it
//       from NCCL as an error of a peer.
// NC-3: CM-1 is weaker here: NCCL adds in an order of its own, which its algorithm and the topology decide. Every value
//       is added once and copied, so that all ranks hold the same bits; runs of the same version, devices and sizes
//       repeat in practice, but NCCL does not promise it. bf16 is rounded at every hop, up to ranks - 1 times. Two
//       ranks in f32 give the bits of rank order, for addition commutes.
// NC-4: only a rank's own side of a call is checked (side_violation()), and that the rows of all parts make the whole.
//       Other calls that do not fit together hang or mix data, as with NCCL itself, until abort().
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/collective/abort_reason.hpp"
#include "runtime/collective/collective_call.hpp"
#include "runtime/collective/communicator.hpp"
#include "runtime/collective/cuda/device_memory.hpp"

namespace maestro {

/// The name of a new group: made by one rank, handed to all. It is plain bytes and may be sent to other processes.
/// Throws std::runtime_error.
[[nodiscard]] ncclUniqueId make_nccl_id();

struct NcclRank {
  ncclUniqueId id;
  std::int64_t size = 1;
  std::int64_t rank = 0;
  cudaStream_t stream = nullptr;  ///< of the current device; outlives the communicator
  /// Shared by the ranks of the group that live in this process (NC-2): any of them may fail first, or end last.
  std::shared_ptr<AbortReason> abort = std::make_shared<AbortReason>();
};

/// Tensors and values lie in device memory that the rank's device can address. Built, used and ended on the rank's own
/// thread, whose current device is set to the rank's by every call. Errors of CUDA and NCCL throw std::runtime_error
/// that names the call and the rank, calls that are wrong by themselves std::logic_error; both abort the group.
///
/// A part's rows are told to the other ranks by a small gather of its own when there are more than two of them.
class NcclCommunicator final : public Communicator {
 public:
  /// Waits for all ranks of the group. Throws std::runtime_error, and CommunicatorAborted while it waits.
  explicit NcclCommunicator(const NcclRank& rank);
  /// Waits until all ranks of the group are ended, unless it is aborted: ranks of one process end on threads of their
  /// own.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  [[nodiscard]] std::int64_t size() const override { return rank_.size; }
  [[nodiscard]] std::int64_t rank() const override { return rank_.rank; }
  void all_reduce_sum(std::span<float> values) override;
  /// NaN: as NCCL's maximum treats it.
  void all_reduce_max(std::span<float> values) override;
  void all_gather_rows(const Tensor& part, const Tensor& whole) override;
  void reduce_scatter_rows(const Tensor& whole, const Tensor& part) override;
  void exchange(const Tensor& from, std::span<const BlockTransfer> sends, const Tensor& to,
                std::span<const BlockTransfer> receives) override;
  void reduce_to_shards(std::span<float> values) override;
  void gather_shards(std::span<float> values) override;
  void abort(const std::string& why) override { rank_.abort->give(why); }
  [[nodiscard]] std::string failure() const override {
    return rank_.abort->given() ? rank_.abort->why() : std::string();
  }

 private:
  /// A block as contiguous device memory: its place in the tensor, or in staging memory if it is a strided rectangle.
  struct Strip {
    int peer = 0;
    TensorBlock block;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    bool staged = false;
  };

  /// The first failure among calls between ncclGroupStart and ncclGroupEnd.
  struct GroupResult {
    ncclResult_t result = ncclSuccess;
    std::string_view call;
    void add(ncclResult_t next, std::string_view next_call);
  };

  /// Every call begins and ends so.
  void begin(const CollectiveCall& call);
  void finish(std::string_view call);
  void all_reduce(std::span<float> values, CollectiveKind kind, ncclRedOp_t operation);
  /// Rows of every rank's part of a whole of `rows`.
  [[nodiscard]] std::vector<std::int64_t> part_rows(std::int64_t own, std::int64_t rows, CollectiveKind kind);
  void gather_uneven(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> rows);
  void reduce_uneven(const Tensor& whole, const Tensor& part, std::span<const std::int64_t> rows);
  [[nodiscard]] std::span<float> shard_of(std::span<float> values, std::int64_t owner) const;
  [[nodiscard]] std::vector<Strip> strips_of(const Tensor& tensor, std::span<const BlockTransfer> transfers,
                                             DeviceMemory& staging);
  void copy_own_blocks(const CollectiveCall& call);

  /// One NCCL group of the calls that issue(GroupResult&) makes. The group is closed whatever they return: what stays
  /// open would swallow later calls of this thread.
  template <class Issue>
  void grouped(std::string_view call, const Issue& issue);
  /// NC-1: until NCCL has taken what was issued.
  void settle(ncclResult_t result, std::string_view call);
  void cuda(cudaError_t result, std::string_view call);
  void look_for_abort(std::string_view call);
  [[nodiscard]] std::string at_rank(std::string_view call) const;
  [[noreturn]] void fail(std::string_view call, const std::string& text);
  [[noreturn]] void refuse(const std::string& wrong);
  /// Ends the NCCL communicator at once; idempotent.
  void end();

  NcclRank rank_;
  int device_ = 0;
  DeviceMemory counts_;    // part_rows(): one count per rank
  DeviceMemory outgoing_;  // strided rectangles on their way
  DeviceMemory incoming_;
  ncclComm_t communicator_ = nullptr;  // null once ended; last to come and first to go
};

}  // namespace maestro
