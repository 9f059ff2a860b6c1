// SPDX-License-Identifier: Apache-2.0
// Device memory that processes of the same host share (CUDA IPC).
//
// MH-1 (whole blocks): an exported block is a whole block of a DeviceSpace, each an allocation of its own. The block
//       and its process stay until every process that imported it has closed it: CUDA leaves the behaviour undefined
//       otherwise.
// MH-2 (repeated imports): a block may be imported several times; the driver counts, and returns the same address for
//       all imports of a device.
// MH-3 (failure as text): a failed import is reported in a few words, never by an exception, and leaves no error
//       behind.
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

/// Each process has its own. Thread-safe.
class MemorySharing {
 public:
  MemorySharing();
  /// Returns plain bytes for other processes; empty if the system does not share memory so. Throws JobError if the
  /// address is no block of the device.
  [[nodiscard]] std::vector<std::byte> export_block(const CudaDevice& device, const std::byte* block) const;
  /// Until the end of the result, which comes after that of all copies to and from it. Null with `why_not` set where
  /// the device does not reach that memory.
  [[nodiscard]] std::unique_ptr<ImportedMemory> import_block(const CudaDevice& device,
                                                             std::span<const std::byte> exported,
                                                             std::string& why_not) const;

 private:
  /// The exporting process, so that the importing process can detect errors that the driver does not report.
  struct Place {
    std::array<char, 36> host{};             // of this boot of the host; zero if unknown
    std::array<std::uint32_t, 4> process{};  // random
  };
  /// The message; both processes are of the same build.
  struct Exported {
    cudaIpcMemHandle_t handle{};
    cudaUUID_t device{};
    Place place;
  };
  Place here_;
};

}  // namespace maestro::cuda
