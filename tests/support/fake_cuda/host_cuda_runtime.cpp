// SPDX-License-Identifier: Apache-2.0
// A fake of the CUDA runtime over host memory, linked in its place: devices, errors, memory and copies. host_cuda.hpp
// lists its guarantees.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/fake_cuda/host_cuda.hpp"
#include "tests/support/fake_cuda/streams.hpp"

using maestro::fake_cuda::answer;
using maestro::fake_cuda::Lock;
using maestro::fake_cuda::push;
using maestro::fake_cuda::runtime;
using maestro::fake_cuda::start_device;
using maestro::fake_cuda::total_memory;

namespace {

constexpr int version = 13000;
constexpr int highest_priority = -5;
constexpr std::size_t sparse_bytes = std::size_t{4}
                                     << 20;  // from this size on, clearing frees pages instead of touching them

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

bool device_side(const void* memory, std::size_t bytes) {
  return bytes == 0 || runtime().type_of(memory, bytes) == cudaMemoryTypeDevice;
}

bool copy_allowed(const void* to, std::size_t to_bytes, const void* from, std::size_t from_bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (!to_device || device_side(to, to_bytes)) && (!from_device || device_side(from, from_bytes));
}

}  // namespace

namespace maestro::fake_cuda {

cudaError_t answer(cudaError_t result) {
  if (runtime().failure != cudaSuccess) result = runtime().failure;
  if (result != cudaSuccess && result != cudaErrorNotReady) last_error = result;
  return result;
}

void start_device() {
  const Lock lock(runtime().mutex);
  runtime().started.insert(current_device);
}

cudaError_t push(cudaStream_t stream, std::function<void()> work) {
  start_device();
  if (runtime().failure != cudaSuccess) return answer();
  runtime().push(stream, [work = std::move(work)] {
    work();
    return true;
  });
  return answer();
}

}  // namespace maestro::fake_cuda

std::size_t maestro::fake_cuda::waits() {
  return runtime().waits;
}

std::size_t maestro::fake_cuda::pinned_allocations() {
  return runtime().pinned;
}

std::size_t maestro::fake_cuda::queued() {
  const Lock lock(runtime().mutex);
  return runtime().queued;
}

extern "C" {

// ---- devices ----

cudaError_t cudaGetDeviceCount(int* count) {
  *count = maestro::fake_cuda::device_count;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= maestro::fake_cuda::device_count) return answer(cudaErrorInvalidDevice);
  current_device = device;
  start_device();  // since CUDA 12
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= maestro::fake_cuda::device_count) return answer(cudaErrorInvalidDevice);
  *properties = cudaDeviceProp{};
  std::snprintf(properties->name, sizeof properties->name, "double");
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = maestro::fake_cuda::multiprocessors;
  properties->totalGlobalMem = total_memory;
  properties->sharedMemPerBlock = maestro::fake_cuda::shared_bytes_without_asking;
  properties->sharedMemPerBlockOptin = maestro::fake_cuda::shared_bytes_per_block;
  properties->warpSize = maestro::fake_cuda::warp_lanes;
  properties->maxThreadsPerBlock = 1024;
  properties->pciDeviceID = device;
  properties->uuid.bytes[0] = static_cast<char>(device);
  return answer();
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t result = cudaGetDeviceProperties(&properties, device);
  if (result != cudaSuccess) return result;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      return cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      return cudaSuccess;
    default:
      return answer(cudaErrorInvalidValue);
  }
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = highest_priority;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* possible, int device, int peer) {
  const int count = maestro::fake_cuda::device_count;
  if (device < 0 || device >= count || peer < 0 || peer >= count) return answer(cudaErrorInvalidDevice);
  *possible = device == peer ? 0 : 1;
  return answer();
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  const Lock lock(runtime().mutex);
  if (peer < 0 || peer >= maestro::fake_cuda::device_count || peer == current_device) {
    return answer(cudaErrorInvalidDevice);
  }
  const bool first = runtime().peers.emplace(current_device, peer).second;
  return answer(first ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceSynchronize() {
  start_device();
  ++runtime().waits;
  const Lock lock(runtime().mutex);
  runtime().run_device();
  return answer();
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  start_device();
  *total = total_memory;
  *free = total_memory - maestro::fake_cuda::allocated_bytes();
  return answer();
}
cudaError_t cudaRuntimeGetVersion(int* runtime_version) {
  *runtime_version = version;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* driver_version) {
  *driver_version = version;
  return cudaSuccess;
}

// ---- errors ----

const char* cudaGetErrorString(cudaError_t error) {
  if (error != cudaSuccess && error == runtime().failure) return runtime().failure_text.c_str();
  return error == cudaSuccess ? "no error" : "an error of the fake";
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "cudaErrorOfTheDouble";
}
cudaError_t cudaPeekAtLastError() {
  return runtime().failure != cudaSuccess ? runtime().failure : last_error;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const Lock lock(runtime().mutex);
  const auto most = static_cast<int>(maestro::fake_cuda::shared_bytes_per_block);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return answer();
  if (value < 0 || value > most) return answer(cudaErrorInvalidValue);
  runtime().shared_bytes[function] = static_cast<std::size_t>(value);
  return answer();
}

// ---- memory ----

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  start_device();
  ++runtime().waits;
  const Lock lock(runtime().mutex);
  if (runtime().failure != cudaSuccess) return answer();
  if (runtime().disturbs_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  if (bytes > total_memory - maestro::fake_cuda::allocated_bytes()) return answer(cudaErrorMemoryAllocation);
  *memory = bytes == 0 ? nullptr : runtime().allocate(bytes, cudaMemoryTypeDevice);
  return answer(bytes > 0 && *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFree(void* memory) {
  start_device();
  ++runtime().waits;
  const Lock lock(runtime().mutex);
  if (runtime().disturbs_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  runtime().run_device();
  if (memory != nullptr) runtime().release(memory);
  return answer();
}
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  if (memory == nullptr) return answer();
  return push(stream, [memory] { runtime().release(memory); });
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  start_device();
  ++runtime().pinned;
  const Lock lock(runtime().mutex);
  if (runtime().failure != cudaSuccess) return answer();
  if (runtime().disturbs_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  *memory = runtime().allocate(bytes, cudaMemoryTypeHost);
  return answer();
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}
cudaError_t cudaFreeHost(void* memory) {
  start_device();
  ++runtime().waits;
  const Lock lock(runtime().mutex);
  if (runtime().disturbs_capture()) return answer(cudaErrorStreamCaptureUnsupported);
  runtime().run_device();
  if (memory != nullptr) runtime().release(memory);
  return answer();
}
cudaError_t cudaHostGetDevicePointer(void** on_device, void* on_host, unsigned) {
  *on_device = on_host;
  return answer();
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const Lock lock(runtime().mutex);
  const auto found = runtime().type_of(memory, 1);
  *attributes = cudaPointerAttributes{};
  attributes->type = found.value_or(cudaMemoryTypeUnregistered);
  attributes->devicePointer = found ? const_cast<void*>(memory) : nullptr;
  return answer();
}

// ---- copies ----

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  if (width == 0 || height == 0) return answer();
  if (!copy_allowed(to, to_pitch * (height - 1) + width, from, from_pitch * (height - 1) + width, kind)) {
    return answer(cudaErrorInvalidValue);
  }
  return push(stream, [=] {
    for (size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    }
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  ++runtime().waits;
  const cudaError_t result = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  if (result != cudaSuccess) return result;
  return cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  if (!runtime().type_of(memory, bytes) && bytes > 0) return answer(cudaErrorInvalidValue);
  return push(stream, [=] {
    // Workspaces are cleared completely and used in part: unused pages need not exist.
    if (value == 0 && bytes >= sparse_bytes && runtime().arena().contains(memory)) {
      return runtime().arena().clear(static_cast<std::byte*>(memory), bytes);
    }
    if (bytes > 0) std::memset(memory, value, bytes);
  });
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  const cudaError_t result = cudaMemsetAsync(memory, value, bytes, nullptr);
  return result == cudaSuccess ? cudaStreamSynchronize(nullptr) : result;
}

}  // extern "C"
