// SPDX-License-Identifier: Apache-2.0
// Streams, events, graphs and memory of the fake: queues of steps that run later. host_cuda_runtime.cpp is its CUDA
// interface, and holds `runtime().mutex` during every call.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/device_arena.hpp"

/// A step of a stream; returns false if it has to wait for another stream.
using Step = std::function<bool()>;

struct Recording {
  bool done = false;
  CUstream_st* stream = nullptr;  ///< stream; null once done
};

struct CUgraph_st {
  std::vector<Step> steps;
};
struct CUgraphExec_st {
  std::vector<Step> steps;
};
struct CUstream_st {
  std::deque<Step> steps;
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  std::unique_ptr<CUgraph_st> capture;  ///< graph that captures steps instead of queueing them; null otherwise
  std::thread::id capturer;
  bool capture_failed = false;  ///< HR-5
};
struct CUevent_st {
  std::shared_ptr<Recording> latest = std::make_shared<Recording>(Recording{true, nullptr});
};

namespace maestro::fake_cuda {

struct Allocation {
  std::size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeDevice;
  void* leak_mark = nullptr;  ///< mark in device memory, found by leak checkers if it is never freed
};

/// A block of another process's device memory, opened by a device.
struct Import {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::byte* mapping = nullptr;  ///< first of the pages that hold it
  std::size_t mapped_bytes = 0;
  std::string handle;  ///< cudaIpcMemHandle_t as bytes
  int device = 0;
  int opened = 0;  ///< number of times opened
};

inline constexpr std::size_t total_memory = std::size_t{1} << 34;  ///< bytes of all devices together

struct Runtime {
  std::recursive_mutex mutex;
  std::set<CUstream_st*> streams;
  CUstream_st default_stream;
  std::map<const std::byte*, Allocation> memory;
  std::vector<Import> imports;
  std::set<std::pair<int, int>> peers;              // devices, and the devices whose memory they reach
  std::set<int> started;                            // devices for started_devices()
  std::map<const void*, std::size_t> shared_bytes;  // by kernel, from cudaFuncSetAttribute
  cudaError_t failure = cudaSuccess;                // HR-4
  std::string failure_text;
  std::atomic<std::size_t> waits = 0;   // count for waits()
  std::atomic<std::size_t> pinned = 0;  // count for pinned_allocations()
  std::size_t queued = 0;               // count for queued()

  CUstream_st* at(cudaStream_t stream) { return stream == nullptr ? &default_stream : stream; }
  void push(cudaStream_t stream, Step step);
  void replay(const CUgraphExec_st& graph, cudaStream_t stream);
  /// Returns true, and fails the capture, if this thread captures a stream.
  bool disturbs_capture();
  /// Runs the first step, or a step of the stream it waits for. Returns false if the step has to wait. Pending work
  /// remains if a step fails.
  bool run_one(CUstream_st* stream);
  /// Waits with the lock released, which the caller holds once: a step may wait for work that another thread queues.
  void run_all(CUstream_st* stream);
  void run_until(const std::shared_ptr<Recording>& recording);
  void run_device();
  void let_others_queue();
  void fail(cudaError_t error, const std::string& text);
  /// Returns the arena, created at the first use: unaffected by earlier events in the process, such as a fork.
  [[nodiscard]] DeviceArena& arena();
  /// Returns null if the arena does not have enough room.
  void* allocate(std::size_t bytes, cudaMemoryType type);
  void release(void* memory);
  /// Returns the type of memory at [memory, memory + bytes): an allocation, or opened memory of another process.
  [[nodiscard]] std::optional<cudaMemoryType> type_of(const void* memory, std::size_t bytes) const;

 private:
  std::optional<DeviceArena> arena_;
};
Runtime& runtime();

using Lock = std::lock_guard<std::recursive_mutex>;
/// Returns a call's result: the sticky failure (HR-4) or `result`, which cudaGetLastError() also returns.
cudaError_t answer(cudaError_t result = cudaSuccess);
/// Starts the current device, for calls that use it.
void start_device();
/// Queues a step that never waits on the stream, unless the device has failed.
cudaError_t push(cudaStream_t stream, std::function<void()> work);

}  // namespace maestro::fake_cuda
