// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/cuda_backend.hpp"

#include <cuda_runtime_api.h>

#include <cstring>

#include "runtime/collective/cuda/nccl_communicator.hpp"
#include "runtime/core/result.hpp"
#include "runtime/device/cuda_driver.hpp"

namespace maestro::cuda {

namespace {

/// Throws JobError, for callers outside the library, which do not catch CUDA types.
void must(cudaError_t result, const std::string& what) {
  if (result == cudaSuccess) return;
  throw JobError(what + ": " + cudaGetErrorString(result), ErrorCode::unavailable);
}

std::string text_of(int device) {
  cudaDeviceProp properties{};
  must(cudaGetDeviceProperties(&properties, device), "properties of cuda:" + std::to_string(device));
  const std::string release = cuda_driver_release();
  return std::string(properties.name) + ", compute capability " + std::to_string(properties.major) + "." +
         std::to_string(properties.minor) + ", " + std::to_string(properties.multiProcessorCount) +
         " multiprocessors, " + std::to_string(properties.totalGlobalMem >> 30) + " GiB" +
         (release.empty() ? "" : ", driver " + release);
}

/// Checks each device: a machine may have devices of several generations.
void check_capability(int device) {
  constexpr int least_major = 8;
  int major = 0;
  must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  if (major >= least_major) return;
  throw JobError("cuda:" + std::to_string(device) + " is of compute capability " + std::to_string(major) +
                     ".x; 8.0 or newer is needed",
                 ErrorCode::unavailable);
}

struct Memory {
  std::size_t free = 0;
  std::size_t total = 0;
};
Memory memory_of(std::size_t index) {
  const CurrentDevice current(static_cast<int>(index));
  Memory memory;
  must(cudaMemGetInfo(&memory.free, &memory.total), "memory of cuda:" + std::to_string(index));
  return memory;
}

}  // namespace

CudaBackend::CudaBackend(TableMaker make_table) : make_table_(std::move(make_table)) {
  int count = 0;
  must(cudaGetDeviceCount(&count), "no device");
  if (count == 0) throw JobError("no device: the CUDA runtime finds none", ErrorCode::unavailable);
  for (int device = 0; device < count; ++device) {
    texts_.push_back(text_of(device));
    parts_.emplace_back(device);
  }
}

std::string CudaBackend::describe(std::size_t index) const {
  if (index < texts_.size()) return texts_[index];
  throw JobError("cuda:" + std::to_string(index) + " does not exist", ErrorCode::unavailable);
}

std::size_t CudaBackend::used_bytes(std::size_t index) const {
  const Memory memory = memory_of(index);
  return memory.total - memory.free;
}

std::size_t CudaBackend::memory_bytes(std::size_t index) const {
  return memory_of(index).total;
}

std::unique_ptr<Device> CudaBackend::open(const DeviceOptions& options) const {
  if (options.index >= texts_.size()) {
    throw JobError(options.name + ": cuda:" + std::to_string(options.index) + " does not exist",
                   ErrorCode::unavailable);
  }
  if (!make_table_) throw JobError(options.name + ": this CUDA backend lacks operators", ErrorCode::unavailable);
  check_capability(static_cast<int>(options.index));
  try {
    auto device = std::make_unique<CudaDevice>(options, poller_, parts_[options.index], make_table_);
    peers_.opened(device->index());
    return device;
  } catch (const DeviceError& failed) {
    throw JobError(options.name + ": " + failed.what(), ErrorCode::unavailable);
  }
}

std::vector<std::byte> CudaBackend::make_group_id() const {
  const ncclUniqueId id = make_nccl_id();
  std::vector<std::byte> bytes(sizeof id);
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

std::unique_ptr<Communicator> CudaBackend::join(Device& device, const GroupRank& rank) const {
  const auto* own = dynamic_cast<CudaDevice*>(&device);
  NcclRank nccl;
  if (own == nullptr || rank.id.size() != sizeof nccl.id) {
    throw JobError(device.name() + ": a group over NCCL is of CUDA devices, and named by make_group_id()");
  }
  std::memcpy(&nccl.id, rank.id.data(), sizeof nccl.id);
  nccl.size = rank.size;
  nccl.rank = rank.rank;
  nccl.stream = own->stream();
  if (rank.abort) nccl.abort = rank.abort;
  nccl.watch = own->groups();
  return std::make_unique<NcclCommunicator>(nccl);
}

std::vector<std::byte> CudaBackend::export_memory(Device& device, const std::byte* block) const {
  const auto* own = dynamic_cast<CudaDevice*>(&device);
  return own == nullptr ? std::vector<std::byte>() : sharing_.export_block(*own, block);
}

std::unique_ptr<ImportedMemory> CudaBackend::import_memory(Device& device, std::span<const std::byte> exported,
                                                           std::string& why_not) const {
  const auto* own = dynamic_cast<CudaDevice*>(&device);
  if (own != nullptr) return sharing_.import_block(*own, exported, why_not);
  why_not = device.name() + " is not a CUDA device";
  return nullptr;
}

}  // namespace maestro::cuda
