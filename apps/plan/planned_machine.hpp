// SPDX-License-Identifier: Apache-2.0
// The devices of this machine over which a plan lays sections: its processors, or its GPUs.
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
  int cores = 0;                        ///< over which processor devices are laid (SearchedDevices)
  const DeviceBackend* gpus = nullptr;  ///< null: processors
  std::string device = "cpu";           ///< model of the GPUs, as profiles name it
  double memory_bytes = std::numeric_limits<double>::infinity();  ///< of each; that of processors is not limited here
  [[nodiscard]] std::string kind() const { return gpus == nullptr ? "cpu" : "cuda"; }
  /// Returns "2 processors", "4 GPUs (NVIDIA H200)".
  [[nodiscard]] std::string text() const;
};

/// Returns so many processors; 0: as many as there are cores.
[[nodiscard]] PlannedMachine planned_processors(std::int64_t devices);
/// Returns the first `devices` GPUs; 0: all. Throws JobError where there are fewer, or none, and for GPUs of unlike
/// models.
[[nodiscard]] PlannedMachine planned_gpus(const CudaStatus& found, std::int64_t devices);

/// Opens the devices to measure on: of GPUs a share of the multiprocessors. `table` is that of processors, and outlives
/// them. Throws the errors of DeviceBackend::open().
[[nodiscard]] std::vector<std::unique_ptr<Device>> open_devices(const PlannedMachine& machine,
                                                                const OperatorTable& table, bool deterministic,
                                                                double share);

}  // namespace maestro
