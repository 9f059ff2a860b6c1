// SPDX-License-Identifier: Apache-2.0
// Times the calls of sections on this machine's devices. Passes run without actors, once on the ranks of a single
// replica and once with all cores at the same work, as cores share caches and memory; on GPUs also on shares of the
// multiprocessors. If there are more devices than cores, ranks of a replica may share a core: calls are then timed by
// the CPU time of their threads, as if each rank had a core to itself. Passes of single ranks on cores that other
// processes take part of are measured again.
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
  std::chrono::milliseconds least{60};  ///< least time for which a layout is measured
  int rounds = 3;                       ///< least rounds after the first pass
  bool deterministic = true;            ///< DeviceOptions::deterministic
};

class SectionProfiler {
 public:
  /// Opens the devices of the machine. Throws JobError for fewer than one, and the errors of open_devices().
  SectionProfiler(PlannedMachine machine, ProfilerOptions options = {});
  ~SectionProfiler();

  [[nodiscard]] std::int64_t devices() const { return machine_.devices; }
  /// Returns how many sizes of micro-batches were measured, and how many of these without enough quiet passes.
  [[nodiscard]] std::size_t measured() const { return measured_; }
  [[nodiscard]] std::size_t disturbed() const { return disturbed_; }
  /// Returns how many rounds of passes were measured again.
  [[nodiscard]] std::size_t repeated() const { return repeated_; }
  /// Adds call times from a section's passes and step ends, with each of `batches` (one or more, any sizes) and its
  /// node's layout. Throws JobError for a replica with more ranks than there are devices, and for a section that fails.
  void add(const ResolvedJob& plan, std::span<const MicroBatchPlan> batches, MachinePrices& prices);
  /// Adds the same on each share of the GPUs in measured_shares.
  void add_shares(const ResolvedJob& plan, std::span<const MicroBatchPlan> batches, MachinePrices& prices);
  /// Adds the work of the job's generator (GeneratorPrices) on CPUs.
  void add_generation(const ResolvedJob& plan, MachinePrices& prices);

 private:
  using Devices = std::vector<std::unique_ptr<Device>>;
  void measure(const Devices& devices, const ResolvedJob& plan, std::span<const MicroBatchPlan> batches,
               std::int64_t copies, const std::vector<CallPrices*>& prices);
  /// Measures groups of 2, 4, ... GPUs that add up so many gradients.
  void measure_sums(std::size_t gradients, CallPrices& prices);
  [[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_group(const std::vector<Device*>& members,
                                                                      std::int64_t ranks) const;

  PlannedMachine machine_;
  ProfilerOptions options_;
  std::int64_t at_once_ = 1;                    // devices with a core each
  std::unique_ptr<const OperatorTable> table_;  // for CPU devices
  Devices devices_;
  std::size_t measured_ = 0;
  std::size_t disturbed_ = 0;
  std::size_t repeated_ = 0;
};

}  // namespace maestro
