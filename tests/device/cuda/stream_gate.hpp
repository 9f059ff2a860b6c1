// SPDX-License-Identifier: Apache-2.0
// A stream that blocks until a test releases it.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>

namespace maestro::cuda {

/// Holds work queued on `stream` after its construction until open() or its destruction.
class StreamGate {
 public:
  explicit StreamGate(cudaStream_t stream);
  ~StreamGate() { open(); }
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;
  void open() {
    open_->store(true);
    open_->notify_all();
  }

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);  // shared with the stream
};

}  // namespace maestro::cuda
