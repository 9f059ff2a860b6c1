// SPDX-License-Identifier: Apache-2.0
// Collects metrics and times of a replica's micro-batches in flight, until the replica reports them to the coordinator.
// Pure.
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

  /// A pass has been submitted to the device.
  void began(Clock::time_point now) { running_ = {{}, {}, now}; }
  /// That pass has ended; `took` is zero for the direction that did not run.
  void finished(std::vector<Metric> metrics, PassCost took);
  /// The micro-batch awaits its backward pass.
  void keep(std::uint32_t index) { kept_[index] = std::move(running_); }
  /// Returns the report to the coordinator; the micro-batch has retired.
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
