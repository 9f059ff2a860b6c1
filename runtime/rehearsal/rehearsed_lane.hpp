// SPDX-License-Identifier: Apache-2.0
// The states of lanes and units in a rehearsal. Plain data.
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

/// A lane in a rehearsal.
struct RehearsedLane {
  LaneKey key;
  const GraphNode* node;
  std::vector<int> devices;
  ReplicaLane queue;
  std::optional<ReplicaLane::Work> work = {};  // running work
  StepEnd step_end = {};
  double since_ms = 0;  // end of the last interval
  const std::string* waits_for = nullptr;
  std::pair<double, std::uint64_t> woken = {};  // time of the latest wake(), and the number of events added by then
  std::vector<LaneInterval> intervals = {};
  /// Returns the priority with which a replica submits its work, or its stream's priority.
  [[nodiscard]] Priority priority(bool streams) const {
    const bool joint = devices.size() > 1 && !streams;
    return node->runs_backward() || joint ? Priority::critical : Priority::background;
  }
  [[nodiscard]] StepId step() const { return work->batch ? work->batch->step : work->mark.step; }
};

/// A unit in a rehearsal that was announced or will be announced.
struct OpenUnit {
  RehearsalUnit given = {};
  std::vector<bool> active = {};  // whether a section has a micro-batch, by section
  std::size_t lanes_left = 0;     // lanes that have not passed the unit's end
  bool ended = false;
  void begin(RehearsalUnit unit, std::size_t sections) {
    given = std::move(unit);
    active.resize(sections);
    for (const MicroBatchPlan& batch : given.plan.micro_batches) active[batch.section.value()] = true;
  }
};

}  // namespace maestro
