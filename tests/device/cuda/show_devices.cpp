// SPDX-License-Identifier: Apache-2.0
// Prints the CUDA devices of this machine, each on a line, or why there is none; 0 or 1 accordingly.
#include <iostream>

#include "runtime/device/backend.hpp"

int main() {
  const maestro::CudaStatus& status = maestro::cuda_status();
  if (status.backend == nullptr) {
    std::cout << status.missing << '\n';
    return 1;
  }
  for (std::size_t index = 0; index < status.devices(); ++index) {
    std::cout << "cuda:" << index << ": " << status.backend->describe(index) << '\n';
  }
  return 0;
}
