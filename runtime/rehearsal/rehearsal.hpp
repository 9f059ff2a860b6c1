// SPDX-License-Identifier: Apache-2.0
// A run in virtual time: the lanes, credits, blocks and step ends of a run play the plans of its steps, each pass
// taking the time that the caller gives it. Answers how long steps take one after another, which the makespan of one
// planned step does not: sections run ahead, and the end of a step overlaps passes of the next. Pure; not thread-safe.
//
// RH-1 (same rules): with the times of the plan, and neither hops nor step ends, a step ends at the makespan of its
//       schedule where slots and blocks do not bind.
// RH-2 (no faster than its devices): no device is busy for longer than the rehearsal lasts, and the work on a core
//       takes no less time than it does alone.
// RH-3 (repeatable): equal input gives equal output; there is no clock in it.
// RH-4 (ends): whatever the times, a rehearsal of plans that a StepPlanner made for the same graph and limits ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/rehearsal/rehearsed_ports.hpp"
#include "runtime/rehearsal/wait_reasons.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "runtime/schedule/flow_bounds.hpp"
#include "runtime/schedule/step_end.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// Durations, in milliseconds. An empty function stands for no time.
struct RehearsalTimes {
  /// A micro-batch on its lane; both passes where the section awaits no gradient.
  std::function<PassCost(const MicroBatchPlan& batch)> passes;
  /// An action at a boundary of a lane; of an exchange, from the arrival of its last lane on, on the cores of all.
  std::function<double(const LaneKey& lane, StepAction action)> actions;
  TransferEstimate transfer;
  /// From a replica's device to its actor, and between the coordinator and a replica.
  double hop_ms = 0;
  /// More for messages between the coordinator and the lane: those of another host.
  std::function<double(const LaneKey& lane)> coordinator;
};

struct RehearsalOptions {
  const SectionGraph* graph = nullptr;  ///< validated; outlives the rehearsal
  FlowLimits limits;
  /// [section][replica]: the devices that a pass needs, numbered from 0; empty, also of a section: its own.
  std::vector<std::vector<std::vector<int>>> devices;
  /// DeviceQueues: of each device, for times of work that has its core alone; empty: each has its own.
  std::vector<int> cores;
  /// DeviceQueues: of each device; empty: 1.
  std::vector<double> demands;
  bool streams = false;       ///< devices are streams of GPUs, which are the cores: exchanges take nothing of them, and
                              ///< all work of a section has its priority
  std::int64_t ahead = 2;     ///< units announced beyond the oldest unfinished one
  bool joined_norms = false;  ///< the norms of all trained sections are answered together
  std::function<StepEndOptions(const LaneKey& lane)> step_ends;  ///< empty: trained sections step, and no more
  RehearsalTimes times;
  /// The unit at whose end the rehearsal may stop, as soon as the intervals of all lanes reach it; empty: of all units.
  std::optional<std::size_t> last = {};
};

/// A step, a validation, or a checkpoint.
struct RehearsalUnit {
  StepPlan plan;  ///< of a checkpoint its step alone
  bool checkpoint = false;
  double planning_ms = 0;  ///< before it is announced; units are planned one after another
};

/// Makes the unit with a number.
using UnitMaker = std::function<RehearsalUnit(std::size_t at)>;

/// A piece of a lane's time. Small, since a rehearsal of thousands of devices has millions.
struct LaneInterval {
  enum class Kind : std::uint8_t { forward, backward, forward_backward, boundary, wait };
  double start_ms = 0;
  double end_ms = 0;
  StepId step;                             ///< of passes and boundaries
  const std::string* waits_for = nullptr;  ///< of a wait, in Rehearsed::reasons; else null
  std::uint32_t batch = 0;                 ///< MicroBatchPlan::index
  Kind kind = Kind::wait;
  Pass pass = Pass::train;
};

struct Rehearsed {
  std::vector<double> unit_ends_ms;                    ///< in the order of the units
  std::map<LaneKey, std::vector<LaneInterval>> lanes;  ///< in order of time; without gaps to the lane's last work
  std::shared_ptr<const WaitReasons> reasons;          ///< to which waits refer
};

class Rehearsal {
 public:
  explicit Rehearsal(RehearsalOptions options) : options_(std::move(options)) {}
  /// Plays so many units in order, each of which is made when it is announced: unit_of(0), unit_of(1), ... The
  /// sequences of their plans begin at 0. Error `internal`, naming the lanes that wait, where nothing can go on.
  [[nodiscard]] Result<Rehearsed> play(std::size_t units, const UnitMaker& unit_of) const;
  [[nodiscard]] Result<Rehearsed> play(std::vector<RehearsalUnit> units) const;

 private:
  RehearsalOptions options_;
};

}  // namespace maestro
