// SPDX-License-Identifier: Apache-2.0
// A scheduling policy: assigns tasks to lanes, and orders them. The same objects plan real runs and simulations.
//
// PO-1 (legal): the schedule of every policy obeys workload.hpp (check_schedule), for every workload with slots >= 1
// and max_in_flight >= 1 that a single task at a time could finish; each task is in it once.
// PO-2 (deterministic): with deterministic = true the schedule depends only on the workload and the options, not on the
// clock.
// PO-3 (baseline): a schedule of wavefront is never longer than the schedule of arrival.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/wavefront/schedule.hpp"

namespace maestro {

/// Thread-safe: plan() may be called from several threads.
class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Returns whether every step waits until the step before it has ended on all lanes.
  [[nodiscard]] virtual bool synchronous() const { return false; }
  /// Returns the packing order of a step's samples into micro-batches, a permutation of 0 .. count - 1. `samples` has a
  /// task for each sample and activated section; WorkloadTask::sample is the number of the sample.
  [[nodiscard]] virtual std::vector<std::size_t> packing_order(const Workload& samples, std::size_t count) const;
  /// Plans a workload. Returns an Error with section and limit if no schedule was found: a single task at a time does
  /// not fit the limits.
  [[nodiscard]] virtual Result<Schedule> plan(const Workload& workload) const = 0;
};

struct PolicyOptions {
  double budget_ms = 350;        ///< time for planning a step; deterministic plans count evaluations instead
  std::int64_t evaluations = 0;  ///< schedules tried at most; 0: by the size of the workload
  bool deterministic = true;
  std::uint64_t seed = 1;
};

using PolicyFactory = std::function<std::unique_ptr<SchedulingPolicy>(const PolicyOptions&)>;

/// Returns the policy "arrival", "bulk_synchronous" or "wavefront", or an added one. Throws JobError with the nearest
/// name for others.
std::unique_ptr<SchedulingPolicy> make_policy(std::string_view name, const PolicyOptions& options = {});
/// Returns the names above, in that order.
std::vector<std::string> policy_names();
/// Adds a policy that [schedule] may name, for the rest of the process; `origin` is the file of a plug-in. Throws
/// JobError if another policy has the name. Thread-safe.
void add_policy(std::string name, PolicyFactory make, std::string origin);

}  // namespace maestro
