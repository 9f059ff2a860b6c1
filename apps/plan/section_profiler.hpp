// SPDX-License-Identifier: Apache-2.0
// Times the calls of sections on the devices of this machine: passes run by themselves, without actors, once on the
// ranks of a single replica and once with all cores at the same work, as they share caches and memory; on GPUs also on
// shares of the multiprocessors. Where there are more devices than cores, calls take the processor time of their
// threads, since ranks of a replica may share a core: every time is that of a core alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "apps/plan/planned_machine.hpp"
#include "runtime/rehearsal/profile_file.hpp"

namespace maestro {

struct ProfilerOptions {
  std::chrono::milliseconds least{60};  ///< for which a layout is measured at least
  int rounds = 3;                       ///< likewise, behind the first pass
  bool deterministic = true;            ///< DeviceOptions::deterministic
};

class SectionProfiler {
 public:
  /// Opens the devices of the machine. Throws JobError for fewer than one, and the errors of open_devices().
  SectionProfiler(PlannedMachine machine, ProfilerOptions options = {});
  ~SectionProfiler();

  [[nodiscard]] std::int64_t devices() const { return machine_.devices; }
  /// Adds the times of the calls that a section's passes and step ends make with each of `batches`, of which there is
  /// at least one, of any sizes, by the layout of its node. Throws JobError for a replica with more ranks than there
  /// are devices, and the errors of the section.
  void add(const ResolvedJob& plan, std::span<const MicroBatchPlan> batches, MachinePrices& prices);
  /// The same on each of measured_shares of the GPUs.
  void add_shares(const ResolvedJob& plan, std::span<const MicroBatchPlan> batches, MachinePrices& prices);

 private:
  using Devices = std::vector<std::unique_ptr<Device>>;
  void measure(const Devices& devices, const ResolvedJob& plan, std::span<const MicroBatchPlan> batches,
               std::int64_t copies, const std::vector<CallPrices*>& prices);
  /// Measures the groups by which 2, 4, ... GPUs add up so many gradients.
  void measure_sums(std::size_t gradients, CallPrices& prices);
  [[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_group(const std::vector<Device*>& members,
                                                                      std::int64_t ranks) const;

  PlannedMachine machine_;
  ProfilerOptions options_;
  std::int64_t at_once_ = 1;                    // devices with a core each
  std::unique_ptr<const OperatorTable> table_;  // of processors
  Devices devices_;
};

}  // namespace maestro
