// SPDX-License-Identifier: Apache-2.0
// The state of a lane and of a unit in a rehearsal. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/device.hpp"
#include "runtime/rehearsal/rehearsal.hpp"
#include "runtime/schedule/replica_lane.hpp"

namespace maestro {

/// A lane of a rehearsal.
struct RehearsedLane {
  LaneKey key;
  const GraphNode* node;
  std::vector<int> devices;
  ReplicaLane queue;
  std::optional<ReplicaLane::Work> work = {};  // that runs
  StepEnd step_end = {};
  double since_ms = 0;  // end of the last interval
  const std::string* waits_for = nullptr;
  std::pair<double, std::uint64_t> woken = {};  // by the latest wake(): for when, and the events that were added then
  std::vector<LaneInterval> intervals = {};
  /// As a replica submits its work, or as its stream has it.
  [[nodiscard]] Priority priority(bool streams) const {
    const bool joint = devices.size() > 1 && !streams;
    return node->runs_backward() || joint ? Priority::critical : Priority::background;
  }
  [[nodiscard]] StepId step() const { return work->batch ? work->batch->step : work->mark.step; }
};

/// A unit of a rehearsal that was announced, or will be.
struct OpenUnit {
  RehearsalUnit given = {};
  std::vector<bool> active = {};  // by section: it has a micro-batch
  std::size_t lanes_left = 0;     // that have not passed the unit's end
  bool ended = false;
  void begin(RehearsalUnit unit, std::size_t sections) {
    given = std::move(unit);
    active.resize(sections);
    for (const MicroBatchPlan& batch : given.plan.micro_batches) active[batch.section.value()] = true;
  }
};

}  // namespace maestro
