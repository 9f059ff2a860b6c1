// SPDX-License-Identifier: Apache-2.0
// Streams, events, graphs and memory of the fake: queues of steps that run later. Bookkeeping; host_cuda_runtime.cpp
// is CUDA's interface to it, and holds `runtime().mutex` around every call.
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

/// A step of a stream; returns false while it has to wait for another stream.
using Step = std::function<bool()>;

/// A recording of an event.
struct Recording {
  bool done = false;
  CUstream_st* stream = nullptr;  ///< null once done
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
  std::unique_ptr<CUgraph_st> capture;  ///< set while steps are captured instead of queued
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
  void* leak_mark = nullptr;  ///< of device memory: found by leak checkers if the memory is never freed
};

/// A block of another process' device memory, opened by a device.
struct Import {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::byte* mapping = nullptr;  ///< of the pages that hold it
  std::size_t mapped_bytes = 0;
  std::string handle;  ///< bytes of the cudaIpcMemHandle_t
  int device = 0;
  int opened = 0;  ///< so many times
};

inline constexpr std::size_t total_memory = std::size_t{1} << 34;  ///< of all devices together

struct Runtime {
  std::recursive_mutex mutex;
  std::set<CUstream_st*> streams;
  CUstream_st default_stream;
  std::map<const std::byte*, Allocation> memory;
  std::vector<Import> imports;
  std::set<std::pair<int, int>> peers;              // devices, and whose memory they reach
  std::set<int> started;                            // devices, started_devices()
  std::map<const void*, std::size_t> shared_bytes;  // by kernel, from cudaFuncSetAttribute
  cudaError_t failure = cudaSuccess;                // HR-4
  std::string failure_text;
  std::atomic<std::size_t> waits = 0;  // waits()
  std::size_t queued = 0;              // queued()

  CUstream_st* at(cudaStream_t stream) { return stream == nullptr ? &default_stream : stream; }
  void push(cudaStream_t stream, Step step);
  void replay(const CUgraphExec_st& graph, cudaStream_t stream);
  /// True, and the capture has failed, while this thread captures a stream.
  bool disturbs_capture();
  /// Runs the first step, or a step of the stream it waits for; returns false where the step has to wait. Pending work
  /// remains where a step fails.
  bool run_one(CUstream_st* stream);
  /// Waits with the lock released, which its caller holds once: a step may wait for work that another thread queues.
  void run_all(CUstream_st* stream);
  void run_until(const std::shared_ptr<Recording>& recording);
  /// All streams of the current device.
  void run_device();
  void let_others_queue();
  void fail(cudaError_t error, const std::string& text);
  /// Created at the first use: unaffected by earlier events of the process, such as a fork.
  [[nodiscard]] DeviceArena& arena();
  /// Null where the arena has no room.
  void* allocate(std::size_t bytes, cudaMemoryType type);
  void release(void* memory);
  /// The type of the memory that holds [memory, memory + bytes): an allocation, or opened memory of another process.
  [[nodiscard]] std::optional<cudaMemoryType> type_of(const void* memory, std::size_t bytes) const;

 private:
  std::optional<DeviceArena> arena_;
};
Runtime& runtime();

using Lock = std::lock_guard<std::recursive_mutex>;
/// Result of a call: the sticky failure (HR-4), else `result`, which cudaGetLastError() also returns.
cudaError_t answer(cudaError_t result = cudaSuccess);
/// For calls that work on the device that is current: starts it.
void start_device();
/// Puts a step that never waits on the stream, unless the device has failed.
cudaError_t push(cudaStream_t stream, std::function<void()> work);

}  // namespace maestro::fake_cuda
