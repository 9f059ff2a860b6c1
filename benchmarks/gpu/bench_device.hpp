// SPDX-License-Identifier: Apache-2.0
// The device that a benchmark runs on, by its name in a job: "cuda:K", or "cpu" to try the benchmark itself.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "runtime/device/device.hpp"
#include "runtime/device/graph_policy.hpp"

namespace maestro::bench {

class BenchDevice {
 public:
  /// Opens the device with `share` of its multiprocessors. Unless `deterministic`, products are tuned and attention
  /// runs at its fastest, as in PyTorch. Throws JobError that names the missing part.
  explicit BenchDevice(const std::string& name, double share = 1, Priority priority = Priority::critical,
                       bool deterministic = false, GraphUse graphs = GraphUse::where_they_pay);
  /// Wraps a device opened elsewhere.
  explicit BenchDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  ~BenchDevice();
  BenchDevice(const BenchDevice&) = delete;
  BenchDevice& operator=(const BenchDevice&) = delete;

  [[nodiscard]] const OperatorTable& ops() const { return device_->ops(); }
  [[nodiscard]] Device& device() { return *device_; }
  /// Runs `work` on the device's thread and waits until all its queued work is complete. Rethrows exceptions of `work`
  /// and failures of the device.
  void run(const std::function<void()>& work);
  /// Returns the device memory in use in MiB; on a CPU the process's largest resident size.
  [[nodiscard]] double memory_mib() const;

 private:
  std::unique_ptr<OperatorTable> cpu_ops_;
  std::unique_ptr<Device> device_;
  std::ptrdiff_t cuda_index_ = -1;
};

}  // namespace maestro::bench
