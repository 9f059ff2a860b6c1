// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/device_space.hpp"

#include <cstring>

#include "runtime/core/result.hpp"

namespace maestro::cuda {

namespace {

std::string mib(std::size_t bytes) {
  return std::to_string((bytes + (std::size_t{1} << 20) - 1) >> 20) + " MiB";
}

SpaceFigures figures_of(const BlockCache& cache) {
  return {cache.used_bytes(), cache.peak_bytes(), cache.reserved_bytes()};
}

void forget_error() {
  static_cast<void>(cudaGetLastError());
}

}  // namespace

DeviceSpace::DeviceSpace(int device, WorkStream& work, std::shared_ptr<EventPool> events)
    : device_(device), work_(work), events_(std::move(events)) {}

DeviceSpace::~DeviceSpace() {
  const CurrentDevice current(device_);
  for (std::byte* host : pinned_) static_cast<void>(cudaHostUnregister(host));
  give_back_cached();
}

std::byte* DeviceSpace::allocate(std::size_t bytes) {
  const CurrentDevice current(device_);
  const std::lock_guard capture(work_.capture);
  const std::lock_guard lock(mutex_);
  try {
    order_parked();
  } catch (const DeviceError& failed) {
    throw JobError("cuda:" + std::to_string(device_) + ": " + failed.what(), ErrorCode::unavailable);
  }
  std::byte* block = cache_.take(bytes);
  if (block == nullptr) {
    block = make(bytes);
    cache_.add(bytes);
  } else if (const auto released = order_.reuse(block, setup_number)) {
    settle(cudaStreamWaitEvent(setup_.get(), released->get(), 0), "the order of memory");  // DS-1
  }
  settle(cudaMemsetAsync(block, 0, BlockCache::rounded(bytes), setup_.get()), "clearing memory");
  settle(cudaStreamSynchronize(setup_.get()), "waiting for the device");
  allocated_.insert(block);
  return block;
}

std::byte* DeviceSpace::make(std::size_t bytes) {
  void* block = nullptr;
  cudaError_t result = cudaMalloc(&block, BlockCache::rounded(bytes));
  if (result == cudaErrorMemoryAllocation) {
    forget_error();
    give_back_cached();
    result = cudaMalloc(&block, BlockCache::rounded(bytes));
  }
  if (result == cudaSuccess) return static_cast<std::byte*>(block);
  forget_error();
  std::size_t free = 0;
  std::size_t total = 0;
  static_cast<void>(cudaMemGetInfo(&free, &total));
  throw JobError("cuda:" + std::to_string(device_) + ": no memory for " + mib(bytes) +
                     " more: " + mib(cache_.used_bytes()) + " are in use by this device's sections, " + mib(free) +
                     " of " + mib(total) + " are free (" + cudaGetErrorString(result) + ")",
                 ErrorCode::unavailable);
}

/// Waits for the device, because cudaFree does.
void DeviceSpace::give_back_cached() {
  for (std::byte* block : cache_.drain()) {
    order_.forget(block);
    static_cast<void>(cudaFree(block));
  }
}

void DeviceSpace::release(std::byte* block, std::size_t bytes) noexcept {
  const CurrentDevice current(device_);
  const std::lock_guard capture(work_.capture);
  const std::lock_guard lock(mutex_);
  allocated_.erase(block);
  parked_.push_back(block);
  cache_.release(block, bytes);
  try {
    order_parked();
  } catch (const DeviceError&) {
    // The device has failed: the block's next user gets the error from its calls.
  }
}

void DeviceSpace::order_parked() {
  if (parked_.empty() || work_.capturing()) return;  // DS-2
  for (std::byte* block : parked_) {
    PooledEvent event = events_->take();
    check(cudaEventRecord(event.get(), work_.stream.get()), "the order of memory");
    order_.released(block, work_number, std::move(event));
  }
  parked_.clear();
}

void DeviceSpace::settle(cudaError_t queued, const char* what) {
  if (queued == cudaSuccess) return;
  forget_error();
  throw JobError("cuda:" + std::to_string(device_) + ": " + what + ": " + cudaGetErrorString(queued),
                 ErrorCode::unavailable);
}

void DeviceSpace::copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return;
  const CurrentDevice current(device_);
  const std::lock_guard lock(mutex_);
  settle(cudaMemcpyAsync(to, from, bytes, kind, setup_.get()), "copying memory");
  settle(cudaStreamSynchronize(setup_.get()), "waiting for the device");
}

void DeviceSpace::read(std::byte* host_to, const std::byte* from, std::size_t bytes) {
  copy(host_to, from, bytes, cudaMemcpyDeviceToHost);
}

void DeviceSpace::write(std::byte* to, const std::byte* host_from, std::size_t bytes) {
  copy(to, host_from, bytes, cudaMemcpyHostToDevice);
}

void DeviceSpace::zero(std::byte* to, std::size_t bytes) {
  if (bytes == 0) return;
  const CurrentDevice current(device_);
  const std::lock_guard lock(mutex_);
  settle(cudaMemsetAsync(to, 0, bytes, setup_.get()), "clearing memory");
  settle(cudaStreamSynchronize(setup_.get()), "waiting for the device");
}

void DeviceSpace::pin(std::byte* host_begin, std::size_t bytes) {
  const CurrentDevice current(device_);
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || pinned_.contains(host_begin)) return;
  if (cudaHostRegister(host_begin, bytes, cudaHostRegisterPortable) == cudaSuccess) {
    pinned_.insert(host_begin);
  } else {
    forget_error();  // a limit of the system, or pinned for another device: transfers are slower, not wrong
  }
}

void DeviceSpace::unpin(std::byte* host_begin) {
  const CurrentDevice current(device_);
  const std::lock_guard lock(mutex_);
  if (pinned_.erase(host_begin) > 0 && cudaHostUnregister(host_begin) != cudaSuccess) forget_error();
}

bool DeviceSpace::holds(const std::byte* block) const {
  const std::lock_guard lock(mutex_);
  return allocated_.contains(block);
}

SpaceFigures DeviceSpace::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_of(cache_);
}

PinnedSpace::~PinnedSpace() {
  const CurrentDevice current(device_);
  for (std::byte* block : cache_.drain()) static_cast<void>(cudaFreeHost(block));
}

std::byte* PinnedSpace::allocate(std::size_t bytes) {
  const std::size_t size = BlockCache::rounded(bytes);
  const std::lock_guard lock(mutex_);
  std::byte* block = cache_.take(bytes);
  if (block == nullptr) {
    const CurrentDevice current(device_);
    void* made = nullptr;
    const cudaError_t result = cudaHostAlloc(&made, size, cudaHostAllocPortable | cudaHostAllocMapped);
    if (result != cudaSuccess) {
      forget_error();
      throw JobError("no pinned memory of " + mib(bytes) + ": " + cudaGetErrorString(result), ErrorCode::unavailable);
    }
    block = static_cast<std::byte*>(made);
    cache_.add(bytes);
  }
  std::memset(block, 0, size);
  return block;
}

void PinnedSpace::release(std::byte* block, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  cache_.release(block, bytes);
}

void PinnedSpace::read(std::byte* host_to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host_to, from, bytes);
}

void PinnedSpace::write(std::byte* to, const std::byte* host_from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, host_from, bytes);
}

void PinnedSpace::zero(std::byte* to, std::size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

SpaceFigures PinnedSpace::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_of(cache_);
}

}  // namespace maestro::cuda
