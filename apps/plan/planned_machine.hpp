// SPDX-License-Identifier: Apache-2.0
// The devices of this machine that a plan uses: its CPUs, or its GPUs.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device/backend.hpp"

namespace maestro {

/// Devices that are alike.
struct PlannedMachine {
  std::int64_t devices = 1;
  int cores = 0;                                                  ///< cores of CPU devices (SearchedDevices)
  const DeviceBackend* gpus = nullptr;                            ///< null: CPUs
  std::string device = "cpu";                                     ///< model of the GPUs, as profiles name it
  double memory_bytes = std::numeric_limits<double>::infinity();  ///< memory of each GPU; not limited for CPUs
  [[nodiscard]] std::string kind() const { return gpus == nullptr ? "cpu" : "cuda"; }
  /// Returns "2 CPU devices", "4 GPUs (NVIDIA H200)".
  [[nodiscard]] std::string text() const;
};

/// Returns so many CPU devices; 0: one per core.
[[nodiscard]] PlannedMachine planned_processors(std::int64_t devices);
/// Returns the first `devices` GPUs; 0: all. Throws JobError if there are fewer, or none, or if models differ.
[[nodiscard]] PlannedMachine planned_gpus(const CudaStatus& found, std::int64_t devices);

/// Opens the devices to measure on; GPUs with a share of their multiprocessors. `table`: operators of CPU devices; it
/// outlives the devices. Throws the errors of DeviceBackend::open().
[[nodiscard]] std::vector<std::unique_ptr<Device>> open_devices(const PlannedMachine& machine,
                                                                const OperatorTable& table, bool deterministic,
                                                                double share);

}  // namespace maestro
