// SPDX-License-Identifier: Apache-2.0
// Device time between two points of a stream, for choosing algorithms.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "runtime/ops/cuda/device_error.hpp"

namespace maestro::cuda {

/// Starts when made; each makes a single measurement.
class EventTimer {
 public:
  explicit EventTimer(cudaStream_t stream) : stream_(stream) {
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    if (cudaEventCreate(&end_) != cudaSuccess) {
      static_cast<void>(cudaEventDestroy(begin_));
      throw DeviceError("cudaEventCreate failed");
    }
    check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
  }
  ~EventTimer() {
    static_cast<void>(cudaEventDestroy(begin_));
    static_cast<void>(cudaEventDestroy(end_));
  }
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;

  /// Of the work given to the stream since; waits for it.
  [[nodiscard]] float milliseconds() {
    check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float taken = 0;
    check(cudaEventElapsedTime(&taken, begin_, end_), "cudaEventElapsedTime");
    return taken;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// Whether the stream's work goes into a graph, where nothing can be timed.
[[nodiscard]] inline bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

/// Device memory for the time of a measurement; freeing it waits for the device.
class TimingMemory {
 public:
  TimingMemory() = default;
  ~TimingMemory() { static_cast<void>(cudaFree(memory_)); }
  TimingMemory(const TimingMemory&) = delete;
  TimingMemory& operator=(const TimingMemory&) = delete;
  /// Null where the device has no room for it: nothing is measured then.
  [[nodiscard]] void* take(std::size_t bytes) {
    const cudaError_t result = cudaMalloc(&memory_, bytes);
    if (result == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());  // else the next launch would find it
      return memory_ = nullptr;
    }
    check(result, "cudaMalloc");
    return memory_;
  }

 private:
  void* memory_ = nullptr;
};

}  // namespace maestro::cuda
