// SPDX-License-Identifier: Apache-2.0
// What is known of the micro-batches that a replica has in hand: figures of their passes and how long those took, until
// the coordinator is told. Pure.
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

  /// A pass goes to the device.
  void began(Clock::time_point now) { running_ = {{}, {}, now}; }
  /// It is done; `took` has zero for the direction that did not run.
  void finished(std::vector<Metric> metrics, PassCost took);
  /// The micro-batch awaits its backward pass.
  void keep(std::uint32_t index) { kept_[index] = std::move(running_); }
  /// The micro-batch has retired: what to tell the coordinator.
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
