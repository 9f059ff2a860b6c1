// SPDX-License-Identifier: Apache-2.0
// A scheduling policy: which lane runs which task, and in what order. The same objects plan real runs and simulations.
//
// PO-1: the schedule of every policy obeys workload.hpp (check_schedule), for every workload with slots >= 1 and
//       max_in_flight >= 1 that one task at a time could finish; each task is in it once.
// PO-2: with deterministic = true the answer depends on the workload and the options alone, not on the clock.
// PO-3: wavefront is never longer than arrival.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/wavefront/schedule.hpp"

namespace maestro {

/// Thread-safe: plan() may be called from several threads.
class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Every step waits for the one before it to end on all lanes.
  [[nodiscard]] virtual bool synchronous() const { return false; }
  /// The order in which the samples of a step are packed into micro-batches. `samples` has one task per sample and
  /// activated section. A permutation of 0 .. samples - 1, where sample numbers are those of WorkloadTask::sample.
  [[nodiscard]] virtual std::vector<std::size_t> packing_order(const Workload& samples, std::size_t count) const;
  /// Error when no schedule was found: one task at a time does not fit the limits; it names section and limit.
  [[nodiscard]] virtual Result<Schedule> plan(const Workload& workload) const = 0;
};

struct PolicyOptions {
  double budget_ms = 350;        ///< of planning one step; deterministic plans count evaluations instead
  std::int64_t evaluations = 0;  ///< schedules tried at most; 0: by the size of the workload
  bool deterministic = true;
  std::uint64_t seed = 1;
};

/// "arrival", "bulk_synchronous" or "wavefront". Throws JobError for another name, with the nearest one.
std::unique_ptr<SchedulingPolicy> make_policy(std::string_view name, const PolicyOptions& options = {});
/// The names above, in that order.
std::vector<std::string_view> policy_names();

}  // namespace maestro
