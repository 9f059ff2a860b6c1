// SPDX-License-Identifier: Apache-2.0
// A rank's side of NCCL: the calls queued on its stream, under a lock, and their end.
//
// NQ-1 (asynchronous): a call returns when NCCL has taken the issued work; it never waits for the device.
// NQ-2 (abort ends it): NCCL's communicator never blocks. The thread that sets the abort's reason ends it at once:
//       queued work ends, and a call that waits for NCCL ends, too.
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
  cudaStream_t stream = nullptr;  ///< stream of the current device; outlives the communicator
  /// Reason shared by the group's ranks in this process: any of them may fail first, or end last.
  std::shared_ptr<AbortReason> abort = std::make_shared<AbortReason>();
  std::shared_ptr<GroupWatch> watch = {};  ///< device's watch, for the thread that waits for its work; may be null
};

/// Belongs to the rank's thread, except for the queries of failures. Errors of CUDA and NCCL throw std::runtime_error
/// that names the call and the rank, and abort the group; calls of an aborted group throw CommunicatorAborted.
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
  /// Waits until all ranks of the group have ended, unless it is aborted: ranks of the same process end on separate
  /// threads.
  ~NcclQueue() override;
  NcclQueue(const NcclQueue&) = delete;
  NcclQueue& operator=(const NcclQueue&) = delete;

  [[nodiscard]] const NcclRank& rank() const { return rank_; }
  [[nodiscard]] cudaStream_t stream() const { return rank_.stream; }
  /// Makes the device current; precedes the first call of a collective.
  void begin(std::string_view call);
  /// Issues a single NCCL call: issue(ncclComm_t) returns its result.
  template <class Issue>
  void one(std::string_view call, const Issue& issue) {
    ncclResult_t result = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      if (communicator_ != nullptr) result = issue(communicator_);
    }
    settle(result, call);
  }
  /// Issues the calls that issue(ncclComm_t, GroupResult&) makes as a single NCCL group. The group is closed whatever
  /// they return: an open group would swallow later calls of this thread.
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
  /// Aborts the group because of an invalid call and throws std::logic_error.
  [[noreturn]] void refuse(const std::string& wrong);
  /// Returns the reason of the abort, or of network_failure(); empty if there is none. Any thread.
  [[nodiscard]] std::string failure() const;
  /// Returns the error that NCCL reports for queued work.
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
  mutable std::mutex mutex_;                       // no thread sets the reason of an abort while it holds this
  ncclComm_t communicator_ = nullptr;              // null once ended
  std::optional<AbortReason::Listener> listener_;  // last: it uses everything above
};

}  // namespace maestro
