#include "runtime/device/cuda/cuda_backend.hpp"

#include <cuda_runtime_api.h>

#include <cstring>

#include "runtime/collective/cuda/nccl_communicator.hpp"
#include "runtime/core/result.hpp"

namespace maestro::cuda {

namespace {

/// For callers outside of the library: they know JobError, not CUDA.
void must(cudaError_t result, const std::string& what) {
  if (result == cudaSuccess) return;
  throw JobError(what + ": " + cudaGetErrorString(result), ErrorCode::unavailable);
}

std::string text_of(int device) {
  cudaDeviceProp properties{};
  must(cudaGetDeviceProperties(&properties, device), "properties of cuda:" + std::to_string(device));
  return std::string(properties.name) + ", compute capability " + std::to_string(properties.major) + "." +
         std::to_string(properties.minor) + ", " + std::to_string(properties.multiProcessorCount) +
         " multiprocessors, " + std::to_string(properties.totalGlobalMem >> 30) + " GiB";
}

}  // namespace

CudaBackend::CudaBackend() {
  int count = 0;
  must(cudaGetDeviceCount(&count), "no device");
  if (count == 0) throw JobError("no device: the CUDA runtime finds none", ErrorCode::unavailable);
  for (int device = 0; device < count; ++device) texts_.push_back(text_of(device));
}

std::string CudaBackend::describe(std::size_t index) const {
  if (index < texts_.size()) return texts_[index];
  throw JobError("there is no cuda:" + std::to_string(index), ErrorCode::unavailable);
}

std::unique_ptr<Device> CudaBackend::open(const DeviceOptions& options) const {
  throw JobError(options.name + ": this CUDA backend has no operators", ErrorCode::unavailable);
}

std::vector<std::byte> CudaBackend::make_group_id() const {
  const ncclUniqueId id = make_nccl_id();
  std::vector<std::byte> bytes(sizeof id);
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

std::unique_ptr<Communicator> CudaBackend::join(Device& device, const GroupRank& /*rank*/) const {
  throw JobError(device.name() + " is no device of the CUDA backend");
}

}  // namespace maestro::cuda
