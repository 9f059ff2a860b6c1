// SPDX-License-Identifier: Apache-2.0
// Times the calls of sections on the devices of this machine: passes run by themselves, without actors, once on the
// ranks of a single replica and once with all cores at the same work, as they share caches and memory. Where there are
// more devices than cores, calls take the processor time of their threads, since ranks of a replica may share a core:
// every time is that of a core alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "runtime/device/device.hpp"
#include "runtime/estimate/profile_file.hpp"

namespace maestro {

class SectionProfiler {
 public:
  /// Opens processor devices cpu:0, ..., cpu:(devices - 1). Throws JobError for fewer than one. A layout is measured
  /// for `least` at least, and for three passes.
  explicit SectionProfiler(std::int64_t devices, std::chrono::milliseconds least = std::chrono::milliseconds(60));
  ~SectionProfiler();

  [[nodiscard]] std::int64_t devices() const { return static_cast<std::int64_t>(devices_.size()); }
  /// Adds the times of the calls that the section's passes and step ends make with `batch`, by the layout of its node.
  /// Throws JobError for a replica with more ranks than there are devices, and the errors of the section.
  void add(const JobPlan& plan, const MicroBatchPlan& batch, MachinePrices& prices);

 private:
  void measure(const JobPlan& plan, const MicroBatchPlan& batch, std::int64_t copies, CallPrices& prices);

  std::unique_ptr<const OperatorTable> table_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::int64_t at_once_ = 1;  // devices with a core each
  std::chrono::milliseconds least_;
};

}  // namespace maestro
