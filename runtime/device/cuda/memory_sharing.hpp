// SPDX-License-Identifier: Apache-2.0
// Device memory that processes of the same host share (CUDA IPC).
//
// MH-1 (whole blocks): an exported block is a complete, separate allocation of a DeviceSpace. The block and its process
//       stay until every process that imported it has closed it: CUDA leaves the behaviour undefined otherwise.
// MH-2 (repeated imports): a block may be imported several times; the driver counts, and returns the same address for
//       all imports of a device.
// MH-3 (failure as text): a failed import is reported in a few words, never by an exception, and clears CUDA's
//       error.
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

/// Memory sharing of a process. Thread-safe.
class MemorySharing {
 public:
  MemorySharing();
  /// Returns plain bytes for other processes; empty if the system does not share memory this way. Throws JobError if
  /// the address is not a block of the device.
  [[nodiscard]] std::vector<std::byte> export_block(const CudaDevice& device, const std::byte* block) const;
  /// Imports a block until the result ends, which is after the end of all copies to and from it. Returns null with
  /// `why_not` set if the device does not reach that memory.
  [[nodiscard]] std::unique_ptr<ImportedMemory> import_block(const CudaDevice& device,
                                                             std::span<const std::byte> exported,
                                                             std::string& why_not) const;

 private:
  /// The exporting process, so that the importing process can detect errors that the driver does not report.
  struct Place {
    std::array<char, 36> host{};             // of this boot of the host; zero if unknown
    std::array<std::uint32_t, 4> process{};  // random
  };
  /// The exported bytes; both processes have the same build.
  struct Exported {
    cudaIpcMemHandle_t handle{};
    cudaUUID_t device{};
    Place place;
  };
  Place here_;
};

}  // namespace maestro::cuda
