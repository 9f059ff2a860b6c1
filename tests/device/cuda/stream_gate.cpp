// SPDX-License-Identifier: Apache-2.0
// On a device: a host function that waits, in stream order.
#include "tests/device/cuda/stream_gate.hpp"

#include "runtime/ops/cuda/device_error.hpp"

namespace maestro::cuda {

namespace {

using Open = std::shared_ptr<std::atomic<bool>>;

void wait_until_open(void* argument) {
  const std::unique_ptr<Open> open(static_cast<Open*>(argument));
  (*open)->wait(false);
}

}  // namespace

StreamGate::StreamGate(cudaStream_t stream) {
  auto held = std::make_unique<Open>(open_);
  check(cudaLaunchHostFunc(stream, wait_until_open, held.get()), "a gate");
  static_cast<void>(held.release());
}

}  // namespace maestro::cuda
