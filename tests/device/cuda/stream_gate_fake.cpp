// SPDX-License-Identifier: Apache-2.0
// With the fake, whose streams must not wait for a thread that calls CUDA.
#include "tests/device/cuda/stream_gate.hpp"
#include "tests/support/fake_cuda/host_cuda.hpp"

namespace maestro::cuda {

StreamGate::StreamGate(cudaStream_t stream) {
  fake_cuda::hold_stream(stream, open_);
}

}  // namespace maestro::cuda
