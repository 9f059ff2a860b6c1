// SPDX-License-Identifier: Apache-2.0
// Shared by tests of the CUDA device. They run on a device if there is one, and with the fake runtime anywhere; so they
// access device memory only through calls of the runtime.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "runtime/device/cuda/cuda_device.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro::cuda {

/// Returns why tests are skipped here; empty if there is a device.
inline std::string missing_device() {
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result == cudaSuccess && devices > 0) return {};
  return std::string("no CUDA device: ") + cudaGetErrorString(result);
}

/// Device 0, its stream, and events.
class SiteTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_device(); !missing.empty()) GTEST_SKIP() << missing;
    work_ = std::make_unique<WorkStream>(Stream());
    events_ = std::make_shared<EventPool>(0);
    timed_events_ = std::make_shared<EventPool>(0, true);
    space_ = std::make_unique<DeviceSpace>(0, *work_, events_);
  }
  void TearDown() override {
    space_.reset();
    events_.reset();
    timed_events_.reset();
    work_.reset();
  }
  [[nodiscard]] cudaStream_t stream() const { return work_->stream.get(); }
  [[nodiscard]] std::vector<unsigned char> bytes_of(const std::byte* block, std::size_t bytes) {
    std::vector<unsigned char> found(bytes);
    space_->read(reinterpret_cast<std::byte*>(found.data()), block, bytes);
    return found;
  }

  std::unique_ptr<WorkStream> work_;
  std::shared_ptr<EventPool> events_;
  std::shared_ptr<EventPool> timed_events_;
  std::unique_ptr<DeviceSpace> space_;
};

/// Returns an empty table; these tests do not use operators.
inline std::unique_ptr<OperatorTable> any_table(const TableSite& /*site*/) {
  return std::make_unique<cpu::CpuOperatorTable>();
}

}  // namespace maestro::cuda
