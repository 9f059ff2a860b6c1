// SPDX-License-Identifier: Apache-2.0
// Detection of an NVIDIA driver that a build can use, without CUDA's headers or libraries.
#pragma once

#include <string>
#include <vector>

namespace maestro {

/// The driver's report about itself.
struct CudaDriver {
  bool found = false;             ///< libcuda.so.1 could be opened
  int start = 0;                  ///< result of cuInit; 0 is success
  std::string start_text;         ///< the driver's words for it
  int version = 0;                ///< the newest supported CUDA: 1000 * major + 10 * minor
  std::string release;            ///< cuda_driver_release()
  std::vector<int> capabilities;  ///< compute capability by device: 10 * major + minor
};

/// Returns the release of the kernel module, "580.95.05"; empty if unknown.
[[nodiscard]] std::string cuda_driver_release();

/// Queries the driver, which starts it.
[[nodiscard]] CudaDriver find_cuda_driver();

/// Returns the reason why a build with CUDA `toolkit` (13, for example) cannot use the driver, as a single line; empty
/// if it can. Pure.
[[nodiscard]] std::string refusal_of(const CudaDriver& driver, int toolkit);

}  // namespace maestro
