// SPDX-License-Identifier: Apache-2.0
// Prints this machine's CUDA devices, one per line, and exits with 0; without devices, the reason, with 1.
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
