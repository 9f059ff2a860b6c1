// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/cuda/nccl_queue.hpp"

#include <stdexcept>
#include <thread>

#include "runtime/collective/communicator.hpp"

namespace maestro {
namespace {

std::string text_of(ncclResult_t result) {
  return std::string(ncclGetErrorString(result)) + ": " + ncclGetLastError(nullptr);
}

}  // namespace

NcclQueue::NcclQueue(const NcclRank& rank) : rank_(rank) {
  if (rank.size < 1 || rank.rank < 0 || rank.rank >= rank.size) {
    throw std::invalid_argument("NcclCommunicator: rank " + std::to_string(rank.rank) + " of " +
                                std::to_string(rank.size));
  }
  cuda(cudaGetDevice(&device_), "cudaGetDevice");
  listener_.emplace(*rank_.abort, [this] { end(); });
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    result = ncclCommInitRankConfig(&communicator_, static_cast<int>(rank.size), rank.id, static_cast<int>(rank.rank),
                                    &config);
  }
  settle(result, "ncclCommInitRankConfig");
  if (rank_.watch) rank_.watch->add(*this);
}

NcclQueue::~NcclQueue() {
  if (rank_.watch) rank_.watch->remove(*this);
  listener_.reset();
  if (communicator_ == nullptr) return;
  ncclResult_t state = rank_.abort->is_set() ? ncclSystemError : ncclCommFinalize(communicator_);
  while (state == ncclInProgress && !rank_.abort->is_set()) {
    std::this_thread::yield();
    if (ncclCommGetAsyncError(communicator_, &state) != ncclSuccess) state = ncclSystemError;
  }
  if (state != ncclSuccess) {
    end();
    return;
  }
  static_cast<void>(ncclCommDestroy(communicator_));  // no work is left, so its result does not matter
}

void NcclQueue::begin(std::string_view call) {
  look_for_abort(call);
  cuda(cudaSetDevice(device_), "cudaSetDevice");
}

std::string NcclQueue::failure() const {
  static_cast<void>(network_failure());  // sets the reason if there is a failure
  return rank_.abort->is_set() ? rank_.abort->why() : std::string();
}

std::string NcclQueue::network_failure() const {
  if (rank_.abort->is_set()) return {};
  ncclResult_t state = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return {};  // being ended
    const ncclResult_t queried = ncclCommGetAsyncError(communicator_, &state);
    if (queried != ncclSuccess) state = queried;
  }
  if (state == ncclSuccess || state == ncclInProgress) return {};
  const std::string error = at_rank("queued work") + text_of(state);
  rank_.abort->set(error);
  return error;
}

void NcclQueue::GroupResult::add(ncclResult_t next, std::string_view next_call) {
  if (result != ncclSuccess || next == ncclSuccess || next == ncclInProgress) return;
  result = next;
  call = next_call;
}

void NcclQueue::settle(ncclResult_t result, std::string_view call) {
  look_for_abort(call);
  while (result == ncclInProgress) {
    std::this_thread::yield();
    {
      const std::lock_guard lock(mutex_);
      const ncclResult_t queried =
          communicator_ == nullptr ? ncclSuccess : ncclCommGetAsyncError(communicator_, &result);
      if (communicator_ == nullptr || queried != ncclSuccess) result = queried;
    }
    look_for_abort(call);
  }
  if (result != ncclSuccess) fail(call, text_of(result));
}

void NcclQueue::cuda(cudaError_t result, std::string_view call) {
  if (result != cudaSuccess) fail(call, cudaGetErrorString(result));
}

void NcclQueue::look_for_abort(std::string_view call) {
  if (!rank_.abort->is_set()) return;
  end();
  throw CommunicatorAborted(at_rank(call) + "the group was aborted: " + rank_.abort->why());
}

std::string NcclQueue::at_rank(std::string_view call) const {
  return std::string(call) + " on rank " + std::to_string(rank_.rank) + " of " + std::to_string(rank_.size) + ": ";
}

void NcclQueue::fail(std::string_view call, const std::string& text) {
  const std::string error = at_rank(call) + text;
  rank_.abort->set(error);
  end();
  throw std::runtime_error(error);
}

void NcclQueue::refuse(const std::string& wrong) {
  rank_.abort->set(wrong);
  end();
  throw std::logic_error(wrong);
}

void NcclQueue::end() {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return;
  static_cast<void>(ncclCommAbort(communicator_));  // the caller reports the failure that led here
  communicator_ = nullptr;
}

}  // namespace maestro
