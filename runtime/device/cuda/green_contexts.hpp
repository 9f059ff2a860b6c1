// SPDX-License-Identifier: Apache-2.0
// Partitioning of a device's multiprocessors among the sections that share it, by the driver's green contexts (CUDA
// driver API, "Green Contexts"; from driver 550 on). The functions are looked up at run time, so that older drivers
// work, too, without the missing functions.
//
// GC-1 (whole groups): the device is partitioned once, into its smallest groups; a part holds complete groups
//       (multiprocessor_split.hpp).
//
// A part's stream belongs to the device's primary context, like every other: memory, events and kernels are shared.
#pragma once

#include <cuda.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device/cuda/stream.hpp"
#include "runtime/device/multiprocessor_split.hpp"

namespace maestro::cuda {

/// The driver's functions; null if it lacks them.
struct GreenContextCalls {
  decltype(&cuDeviceGetDevResource) resource_of_device = nullptr;
  decltype(&cuDevSmResourceSplitByCount) split = nullptr;
  decltype(&cuDevResourceGenerateDesc) describe = nullptr;
  decltype(&cuGreenCtxCreate) create = nullptr;
  decltype(&cuGreenCtxDestroy) destroy = nullptr;
  decltype(&cuGreenCtxStreamCreate) create_stream = nullptr;
  [[nodiscard]] bool complete() const;
  /// Returns the functions of the loaded driver.
  [[nodiscard]] static GreenContextCalls of_driver();
};

class DeviceParts;

/// Some of a device's multiprocessors, until it ends. Its streams end before it.
class DevicePart {
 public:
  DevicePart(DeviceParts& parts, CUgreenCtx context, std::vector<int> groups);
  ~DevicePart();
  DevicePart(const DevicePart&) = delete;
  DevicePart& operator=(const DevicePart&) = delete;
  [[nodiscard]] Stream stream(Priority priority) const;
  [[nodiscard]] int multiprocessors() const;

 private:
  DeviceParts& parts_;
  CUgreenCtx context_;
  std::vector<int> groups_;
};

/// Thread-safe; outlives its parts. Its device is current when a member is called.
class DeviceParts {
 public:
  explicit DeviceParts(int device, const GreenContextCalls& calls = GreenContextCalls::of_driver());
  /// Returns a part of `share`; null, and the reason in `why_not`, if the driver cannot partition. Throws JobError if
  /// no multiprocessors are left.
  [[nodiscard]] std::unique_ptr<DevicePart> take(double share, std::string& why_not);

 private:
  friend class DevicePart;
  struct Cut {
    std::vector<CUdevResource> groups;
    MultiprocessorLedger ledger;
  };
  [[nodiscard]] std::optional<Cut> cut(std::string& why_not) const;
  [[nodiscard]] CUresult create(const std::vector<int>& groups, CUgreenCtx* context);
  void give_back(const std::vector<int>& groups);

  int device_;
  GreenContextCalls calls_;
  std::mutex mutex_;
  std::optional<Cut> cut_;
};

}  // namespace maestro::cuda
