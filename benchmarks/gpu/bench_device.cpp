// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/bench_device.hpp"

#include <exception>
#include <future>
#include <iostream>
#include <stdexcept>

#include "runtime/core/device_id.hpp"
#include "runtime/core/result.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/observe/max_rss.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro::bench {

BenchDevice::BenchDevice(const std::string& name, double share, Priority priority, bool deterministic,
                         GraphUse graphs) {
  if (name == "cpu") {
    cpu_ops_ = std::make_unique<cpu::CpuOperatorTable>();
    device_ = std::make_unique<CpuDevice>("cpu:0", 0, *cpu_ops_);
    return;
  }
  const std::optional<DeviceId> device = parse_device(name);
  if (!device || !device->is_cuda()) throw JobError("\"" + name + "\" is no device; use cuda:0, or cpu");
  const CudaStatus& status = cuda_status();
  if (status.backend == nullptr) throw JobError(name + ": " + status.missing, ErrorCode::unavailable);
  DeviceOptions options;
  options.index = static_cast<std::size_t>(device->index);
  options.name = name;
  options.share = share;
  options.deterministic = deterministic;
  options.priority = priority;
  options.graphs = graphs;
  options.log = [](const std::string& line) { std::cerr << line << '\n'; };
  device_ = status.backend->open(options);
  cuda_index_ = static_cast<std::ptrdiff_t>(options.index);
}

BenchDevice::~BenchDevice() {
  device_->stop();
}

void BenchDevice::run(const std::function<void()>& work) {
  std::promise<std::string> finished;
  device_->submit(Priority::critical, [&] {
    try {
      work();
    } catch (...) {
      return finished.set_exception(std::current_exception());
    }
    device_->finish([&finished](const std::string& failure) { finished.set_value(failure); });
  });
  const std::string failure = finished.get_future().get();
  if (!failure.empty()) throw std::runtime_error(failure);
}

double BenchDevice::memory_mib() const {
  if (cuda_index_ < 0) return max_rss_mb();
  const std::size_t bytes = cuda_status().backend->used_bytes(static_cast<std::size_t>(cuda_index_));
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace maestro::bench
