// SPDX-License-Identifier: Apache-2.0
// Collects metrics and times of a replica's micro-batches in flight until they are reported to the coordinator. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "actors/messages/messages.hpp"
#include "runtime/schedule/cost_model.hpp"

namespace maestro {

/// Not thread-safe; belongs to the replica's actor.
class PassLog {
 public:
  using Clock = std::chrono::steady_clock;

  /// Records that a pass has been submitted to the device.
  void began(Clock::time_point now) { running_ = {{}, {}, now}; }
  /// Records the end of that pass; `took` is zero for a direction that did not run.
  void finished(std::vector<Metric> metrics, PassCost took);
  /// Keeps the record until the micro-batch's backward pass.
  void keep(std::uint32_t index) { kept_[index] = std::move(running_); }
  /// Returns the report of a retired micro-batch to the coordinator.
  [[nodiscard]] MicroBatchDone retire(const MicroBatchPlan& plan, Clock::time_point now);

 private:
  struct Record {
    std::vector<Metric> metrics;
    PassCost took;  // milliseconds
    Clock::time_point began;
  };
  Record running_;
  std::map<std::uint32_t, Record> kept_;  // by MicroBatchPlan::index
};

}  // namespace maestro
