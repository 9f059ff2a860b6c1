// SPDX-License-Identifier: Apache-2.0
// Device memory that processes of one host show each other (CUDA IPC).
//
// MH-1: what is exported is a whole block of a DeviceSpace, each an allocation of its own. It stays, and so does its
//       process, until every process that imported it has let go of it: CUDA leaves undefined what happens else.
// MH-2: a block may be imported several times; the driver counts, and gives all of a device the same address.
// MH-3: what cannot be imported is told in a few words, never by an exception, and leaves no error behind.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/device/backend.hpp"
#include "runtime/device/cuda/cuda_device.hpp"

namespace maestro::cuda {

/// One for a process. Thread-safe.
class MemorySharing {
 public:
  MemorySharing();
  /// Plain bytes for other processes; empty where the system does not share memory so. Throws JobError for what is no
  /// block of the device.
  [[nodiscard]] std::vector<std::byte> export_block(const CudaDevice& device, const std::byte* block) const;
  /// Until the end of the result, which comes after that of all copies to and from it. Null with `why_not` set where
  /// the device does not reach that memory.
  [[nodiscard]] std::unique_ptr<ImportedMemory> import_block(const CudaDevice& device,
                                                             std::span<const std::byte> exported,
                                                             std::string& why_not) const;

 private:
  /// Who exports, so that whoever imports finds out what the driver does not say.
  struct Place {
    std::array<char, 36> host{};             // of this boot of the host; zero where it does not tell
    std::array<std::uint32_t, 4> process{};  // random
  };
  /// What is sent: between processes of one build.
  struct Exported {
    cudaIpcMemHandle_t handle{};
    cudaUUID_t device{};
    Place place;
  };
  Place here_;
};

}  // namespace maestro::cuda
