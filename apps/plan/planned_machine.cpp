// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/planned_machine.hpp"

#include <algorithm>

#include "runtime/core/result.hpp"
#include "runtime/core/usable_cores.hpp"
#include "runtime/device/cpu_device.hpp"

namespace maestro {

namespace {

/// Returns "NVIDIA H200" of DeviceBackend::describe().
std::string model_of(const DeviceBackend& gpus, std::size_t index) {
  const std::string text = gpus.describe(index);
  return text.substr(0, text.find(','));
}

}  // namespace

std::string PlannedMachine::text() const {
  if (gpus == nullptr) return std::to_string(devices) + (devices == 1 ? " CPU device" : " CPU devices");
  return std::to_string(devices) + (devices == 1 ? " GPU (" : " GPUs (") + device + ")";
}

PlannedMachine planned_processors(std::int64_t devices) {
  PlannedMachine machine;
  machine.cores = static_cast<int>(usable_cores().size());
  machine.devices = devices > 0 ? devices : machine.cores;
  return machine;
}

PlannedMachine planned_gpus(const CudaStatus& found, std::int64_t devices) {
  if (found.backend == nullptr) throw JobError("no GPU to plan for: " + found.missing, ErrorCode::unavailable);
  const auto all = static_cast<std::int64_t>(found.devices());
  if (devices > all) {
    throw JobError("--devices " + std::to_string(devices) + ": there " +
                       (all == 1 ? "is 1 GPU" : "are " + std::to_string(all) + " GPUs"),
                   ErrorCode::unavailable);
  }
  PlannedMachine machine;
  machine.devices = devices > 0 ? devices : all;
  machine.gpus = found.backend;
  machine.device = model_of(*found.backend, 0);
  for (std::int64_t device = 0; device < machine.devices; ++device) {
    const auto index = static_cast<std::size_t>(device);
    const std::string model = model_of(*found.backend, index);
    if (model != machine.device) {
      throw JobError("cuda:" + std::to_string(device) + " is a " + model + ", and cuda:0 a " + machine.device +
                     ": plan lays sections over equal devices; give --devices " + std::to_string(device));
    }
    machine.memory_bytes = std::min(machine.memory_bytes, static_cast<double>(found.backend->memory_bytes(index)));
  }
  return machine;
}

std::vector<std::unique_ptr<Device>> open_devices(const PlannedMachine& machine, const OperatorTable& table,
                                                  bool deterministic, double share) {
  std::vector<std::unique_ptr<Device>> opened;
  const auto cores = static_cast<std::int64_t>(usable_cores().size());
  for (std::int64_t device = 0; device < machine.devices; ++device) {
    const std::string name = machine.kind() + ":" + std::to_string(device);
    if (machine.gpus == nullptr) {
      opened.push_back(std::make_unique<CpuDevice>(name, static_cast<int>(device % cores), table));
      continue;
    }
    DeviceOptions options;
    options.index = static_cast<std::size_t>(device);
    options.name = name;
    options.deterministic = deterministic;
    options.share = share;
    opened.push_back(machine.gpus->open(options));
  }
  return opened;
}

}  // namespace maestro
