// SPDX-License-Identifier: Apache-2.0
// Device time between two points of a stream, for choosing algorithms.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "runtime/ops/cuda/device_error.hpp"

namespace maestro::cuda {

/// Starts at construction; each makes a single measurement.
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

  /// Returns the device time of the work given to the stream since; waits for it.
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

/// Returns whether the stream's work is captured into a graph, which prevents timing.
[[nodiscard]] inline bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

/// Device memory for the duration of a measurement; freeing it waits for the device.
class TimingMemory {
 public:
  TimingMemory() = default;
  ~TimingMemory() { static_cast<void>(cudaFree(memory_)); }
  TimingMemory(const TimingMemory&) = delete;
  TimingMemory& operator=(const TimingMemory&) = delete;
  /// Returns null if the device lacks memory for it: then nothing is measured.
  [[nodiscard]] void* take(std::size_t bytes) {
    const cudaError_t result = cudaMalloc(&memory_, bytes);
    if (result == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());  // clears the error, so that the next launch does not report it
      return memory_ = nullptr;
    }
    check(result, "cudaMalloc");
    return memory_;
  }

 private:
  void* memory_ = nullptr;
};

}  // namespace maestro::cuda
