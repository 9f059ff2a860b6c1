// SPDX-License-Identifier: Apache-2.0
// Pinning of existing memory, which the fake CUDA runtime lacks.
#include <cuda_runtime_api.h>

#include <mutex>
#include <set>

namespace {
std::mutex registered_mutex;
std::set<void*> registered;
}  // namespace

extern "C" {
cudaError_t cudaHostRegister(void* memory, size_t, unsigned) {
  const std::lock_guard lock(registered_mutex);
  return registered.insert(memory).second ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
}
cudaError_t cudaHostUnregister(void* memory) {
  const std::lock_guard lock(registered_mutex);
  return registered.erase(memory) == 1 ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}
}  // extern "C"
