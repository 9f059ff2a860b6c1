// SPDX-License-Identifier: Apache-2.0
// Failures of CUDA and of its libraries, as exceptions that stay inside the CUDA backend.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace maestro::cuda {

/// A device call that failed; what() contains the call, its purpose, and the library's text.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws DeviceError unless `result` is cudaSuccess; `what` names the call or the kernel.
inline void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // clears the error, so that the next launch does not report it
  throw DeviceError(std::string(what) + ": " + cudaGetErrorString(result));
}

}  // namespace maestro::cuda
