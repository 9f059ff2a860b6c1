// SPDX-License-Identifier: Apache-2.0
// One rank's side of NCCL: what is queued on its stream, under a lock, and how it ends.
//
// NQ-1: a call returns when NCCL has taken what was issued; it never waits for the device.
// NQ-2: NCCL's communicator never blocks. Whoever gives the reason of the abort ends it at once, on his own thread:
//       what is queued ends, and so does a call that waits for NCCL.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/collective/abort_reason.hpp"
#include "runtime/collective/group_watch.hpp"

namespace maestro {

struct NcclRank {
  ncclUniqueId id;
  std::int64_t size = 1;
  std::int64_t rank = 0;
  cudaStream_t stream = nullptr;  ///< of the current device; outlives the communicator
  /// Shared by the ranks of the group that live in this process: any of them may fail first, or end last.
  std::shared_ptr<AbortReason> abort = std::make_shared<AbortReason>();
  std::shared_ptr<GroupWatch> watch = {};  ///< of the device, for whoever waits for its work; may be absent
};

/// Belongs to the rank's thread, but for the failures. Errors of CUDA and NCCL throw std::runtime_error that names the
/// call and the rank, and abort the group; CommunicatorAborted where it was aborted.
class NcclQueue final : public WatchedGroup {
 public:
  /// The first failure among calls between ncclGroupStart and ncclGroupEnd.
  struct GroupResult {
    ncclResult_t result = ncclSuccess;
    std::string_view call;
    void add(ncclResult_t next, std::string_view next_call);
  };

  /// Waits for all ranks of the group.
  explicit NcclQueue(const NcclRank& rank);
  /// Waits until all ranks of the group are ended, unless it is aborted: ranks of one process end on threads of their
  /// own.
  ~NcclQueue() override;
  NcclQueue(const NcclQueue&) = delete;
  NcclQueue& operator=(const NcclQueue&) = delete;

  [[nodiscard]] const NcclRank& rank() const { return rank_; }
  [[nodiscard]] cudaStream_t stream() const { return rank_.stream; }
  /// Before the first of the calls that a collective consists of: makes the device current.
  void begin(std::string_view call);
  /// What issue(ncclComm_t) returns is that of one call.
  template <class Issue>
  void one(std::string_view call, const Issue& issue) {
    ncclResult_t result = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      if (communicator_ != nullptr) result = issue(communicator_);
    }
    settle(result, call);
  }
  /// One NCCL group of the calls that issue(ncclComm_t, GroupResult&) makes. The group is closed whatever they return:
  /// what stays open would swallow later calls of this thread.
  template <class Issue>
  void group(std::string_view call, const Issue& issue) {
    GroupResult issued;
    ncclResult_t ended = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      if (communicator_ != nullptr) {
        issued.add(ncclGroupStart(), "ncclGroupStart");
        if (issued.result == ncclSuccess) {
          issue(communicator_, issued);
          ended = ncclGroupEnd();
        }
      }
    }
    settle(issued.result, issued.call);
    settle(ended, call);
  }
  void cuda(cudaError_t result, std::string_view call);
  /// A call that is wrong by itself: aborts the group and throws std::logic_error.
  [[noreturn]] void refuse(const std::string& wrong);
  /// The reason of the abort, or of network_failure(); empty when all is well. Any thread.
  [[nodiscard]] std::string failure() const;
  /// What NCCL tells of what was queued.
  [[nodiscard]] std::string network_failure() const override;

 private:
  void settle(ncclResult_t result, std::string_view call);
  void look_for_abort(std::string_view call);
  [[nodiscard]] std::string at_rank(std::string_view call) const;
  [[noreturn]] void fail(std::string_view call, const std::string& text);
  /// Ends NCCL's communicator at once; idempotent. Any thread.
  void end();

  NcclRank rank_;
  int device_ = 0;
  mutable std::mutex mutex_;                       // nobody gives the reason of an abort while it is held
  ncclComm_t communicator_ = nullptr;              // null once ended
  std::optional<AbortReason::Listener> listener_;  // last: it uses everything above
};

}  // namespace maestro
