// SPDX-License-Identifier: Apache-2.0
// The fake CUDA runtime: device memory of other processes. host_cuda.hpp lists its guarantees.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/support/fake_cuda/streams.hpp"

using maestro::fake_cuda::answer;
using maestro::fake_cuda::Import;
using maestro::fake_cuda::Lock;
using maestro::fake_cuda::runtime;

namespace {

/// Content of the fake's cudaIpcMemHandle_t: a block in another process's arena.
struct Handle {
  std::int64_t process = 0;
  std::int64_t file = 0;  // file descriptor in that process
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

/// Returns whether MAESTRO_FAKE_CUDA_IPC refuses `act`: "none" refuses to export, "export" to open exported memory.
bool refuses(std::string_view act) {
  const char* far = std::getenv("MAESTRO_FAKE_CUDA_IPC");
  return far != nullptr && far == act;
}

/// Maps the pages that hold the block. Returns an empty import if the other process or its file does not exist.
Import map_block(const Handle& handle) {
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return {};
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = handle.offset / page * page;
  const std::uint64_t end = handle.offset + handle.bytes;
  struct stat found {};
  Import import;
  if (fstat(file, &found) == 0 && end <= static_cast<std::uint64_t>(found.st_size)) {
    void* mapped = mmap(nullptr, end - begin, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(begin));
    if (mapped != MAP_FAILED) {
      import.mapping = static_cast<std::byte*>(mapped);
      import.mapped_bytes = end - begin;
      import.memory = import.mapping + (handle.offset - begin);
      import.bytes = handle.bytes;
    }
  }
  close(file);
  return import;
}

}  // namespace

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  const Lock lock(runtime().mutex);
  if (refuses("none")) return answer(cudaErrorNotSupported);
  const auto found = runtime().memory.find(static_cast<const std::byte*>(memory));
  if (found == runtime().memory.end() || found->second.type != cudaMemoryTypeDevice) {
    return answer(cudaErrorInvalidValue);
  }
  const Handle made{getpid(), runtime().arena().file(), runtime().arena().offset_of(memory), found->second.bytes};
  *handle = cudaIpcMemHandle_t{};
  std::memcpy(handle->reserved, &made, sizeof made);
  return answer();
}

cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags) {
  const Lock lock(runtime().mutex);
  if (flags != cudaIpcMemLazyEnablePeerAccess) return answer(cudaErrorInvalidValue);
  Handle block;
  std::memcpy(&block, handle.reserved, sizeof block);
  if (block.process == getpid()) return answer(cudaErrorDeviceUninitialized);  // CUDA's error for this case
  int device = 0;
  cudaGetDevice(&device);
  const std::string key(handle.reserved, sizeof handle.reserved);
  for (Import& import : runtime().imports) {
    if (import.device != device || import.handle != key) continue;
    ++import.opened;
    *memory = import.memory;
    return answer();
  }
  Import import = refuses("export") ? Import() : map_block(block);
  if (import.memory == nullptr) return answer(cudaErrorMapBufferObjectFailed);
  import.device = device;
  import.handle = key;
  import.opened = 1;
  *memory = import.memory;
  runtime().imports.push_back(import);
  return answer();
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
  const Lock lock(runtime().mutex);
  int device = 0;
  cudaGetDevice(&device);
  for (auto import = runtime().imports.begin(); import != runtime().imports.end(); ++import) {
    if (import->memory != memory || import->device != device) continue;
    if (--import->opened > 0) return answer();
    munmap(import->mapping, import->mapped_bytes);
    runtime().imports.erase(import);
    return answer();
  }
  return answer(cudaErrorInvalidValue);
}

}  // extern "C"
