// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/memory_sharing.hpp"

#include <cstring>
#include <fstream>
#include <optional>
#include <random>

#include "runtime/core/result.hpp"

namespace maestro::cuda {

namespace {

/// Memory that this process has opened.
class ImportedMemories final : public ImportedMemory {
 public:
  ImportedMemories(int device, void* data) : device_(device), data_(static_cast<std::byte*>(data)) {}
  ~ImportedMemories() override {
    const CurrentDevice current(device_);
    if (cudaIpcCloseMemHandle(data_) != cudaSuccess) static_cast<void>(cudaGetLastError());  // the device has failed
  }
  ImportedMemories(const ImportedMemories&) = delete;
  ImportedMemories& operator=(const ImportedMemories&) = delete;
  [[nodiscard]] std::byte* data() const override { return data_; }

 private:
  int device_;
  std::byte* data_;
};

/// Returns the driver's name of a device, independent of its number in a process; nothing if the driver has none.
std::optional<cudaUUID_t> uuid_of(int device) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) return properties.uuid;
  static_cast<void>(cudaGetLastError());
  return std::nullopt;
}

/// Returns a device's number in this process; nothing if the process does not see it.
std::optional<int> device_of(const cudaUUID_t& uuid) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) static_cast<void>(cudaGetLastError());
  for (int device = 0; device < count; ++device) {
    const std::optional<cudaUUID_t> found = uuid_of(device);
    if (found && std::memcmp(&*found, &uuid, sizeof uuid) == 0) return device;
  }
  return std::nullopt;
}

bool without_way(int device, int owner) {
  int possible = 0;
  if (device == owner || cudaDeviceCanAccessPeer(&possible, device, owner) == cudaSuccess) {
    return device != owner && possible == 0;
  }
  static_cast<void>(cudaGetLastError());
  return false;  // the driver reports it when the memory is opened
}

}  // namespace

MemorySharing::MemorySharing() {
  std::ifstream("/proc/sys/kernel/random/boot_id").read(here_.host.data(), std::ssize(here_.host));
  std::random_device random;
  for (std::uint32_t& word : here_.process) word = random();
}

std::vector<std::byte> MemorySharing::export_block(const CudaDevice& device, const std::byte* block) const {
  if (!device.memory().holds(block)) {
    throw JobError(device.name() + ": only a complete block of the device's memory can be exported");
  }
  const CurrentDevice current(device.index());
  const std::optional<cudaUUID_t> uuid = uuid_of(device.index());
  Exported exported;
  const cudaError_t result = cudaIpcGetMemHandle(&exported.handle, const_cast<std::byte*>(block));
  if (result != cudaSuccess) static_cast<void>(cudaGetLastError());
  if (result != cudaSuccess || !uuid) return {};
  exported.device = *uuid;
  exported.place = here_;
  std::vector<std::byte> bytes(sizeof exported);
  std::memcpy(bytes.data(), &exported, sizeof exported);
  return bytes;
}

std::unique_ptr<ImportedMemory> MemorySharing::import_block(const CudaDevice& device,
                                                            std::span<const std::byte> exported,
                                                            std::string& why_not) const {
  Exported there;
  if (exported.empty()) return why_not = "its process cannot share its device memory", nullptr;
  if (exported.size() != sizeof there) return why_not = "it is not memory of a CUDA device", nullptr;
  std::memcpy(&there, exported.data(), sizeof there);
  if (there.place.host != here_.host) return why_not = "it is on another host", nullptr;
  if (there.place.process == here_.process) return why_not = "it is memory of this process", nullptr;
  const CurrentDevice current(device.index());
  const std::optional<int> owner = device_of(there.device);
  if (owner && without_way(device.index(), *owner)) {
    why_not = "cuda:" + std::to_string(device.index()) + " cannot reach cuda:" + std::to_string(*owner);
    return nullptr;
  }
  void* data = nullptr;
  const cudaError_t result = cudaIpcOpenMemHandle(&data, there.handle, cudaIpcMemLazyEnablePeerAccess);
  if (result == cudaSuccess) return std::make_unique<ImportedMemories>(device.index(), data);
  static_cast<void>(cudaGetLastError());
  why_not = std::string("the driver does not open it: ") + cudaGetErrorString(result);
  return nullptr;
}

}  // namespace maestro::cuda
