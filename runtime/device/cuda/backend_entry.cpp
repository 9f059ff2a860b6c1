// SPDX-License-Identifier: Apache-2.0
// The only name that libmaestro_cuda.so shows; see DB-2 in backend.hpp.
#include <exception>
#include <string>

#include "runtime/device/cuda/cuda_backend.hpp"
#include "runtime/device/cuda/cuda_tables.hpp"

extern "C" __attribute__((visibility("default"))) void maestro_cuda_backend(const char* interface,
                                                                            maestro::CudaStatus* status) {
  if (std::string(interface) != MAESTRO_CUDA_INTERFACE) {
    status->missing = std::string(maestro::cuda_library_name) + " is of another build than the program";
    return;
  }
  try {
    static const maestro::cuda::CudaBackend backend(maestro::cuda::cuda_tables());
    status->backend = &backend;
  } catch (const std::exception& failed) {
    status->missing = failed.what();
  }
}
