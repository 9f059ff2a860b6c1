// SPDX-License-Identifier: Apache-2.0
// A run in virtual time: lanes, credits, blocks and step ends play the plans of steps, with a given time for each pass.
// Unlike the makespan of one planned step, the result contains the effects between steps: sections run ahead, and the
// end of a step overlaps passes of the next. Pure; not thread-safe.
//
// RH-1 (same rules): with the plan's times, without hops and step ends, and if slots and blocks do not limit it, a step
//       ends at the makespan of its schedule.
// RH-2 (no faster than its devices): no device is busy for longer than the rehearsal lasts, and work on a core takes at
//       least the time that it takes on an otherwise idle core.
// RH-3 (repeatable): equal input results in equal output; no real clock is read.
// RH-4 (ends): a rehearsal of plans that a StepPlanner made for the same graph and limits ends, for any times.
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
#include "runtime/rehearsal/rehearsed_rollouts.hpp"
#include "runtime/rehearsal/wait_reasons.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "runtime/schedule/flow_bounds.hpp"
#include "runtime/schedule/step_end.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// Durations in milliseconds. An empty function means that no time passes.
struct RehearsalTimes {
  /// Time of a micro-batch on its lane; of both passes if the section does not wait for a gradient.
  std::function<PassCost(const MicroBatchPlan& batch)> passes;
  /// Time of an action at a lane's boundary; an exchange counts from the arrival of its last lane, on all lanes' cores.
  std::function<double(const LaneKey& lane, StepAction action)> actions;
  TransferEstimate transfer;
  /// Time from a replica's device to its actor, and between the coordinator and a replica.
  double hop_ms = 0;
  /// Additional time for messages between the coordinator and the lane, if it is on another host.
  std::function<double(const LaneKey& lane)> coordinator;
};

/// A section that makes samples.
struct RehearsedGenerator {
  SectionId section;
  GeneratorShape shape;
  GenerationTimes times;
};

struct RehearsalOptions {
  const SectionGraph* graph = nullptr;  ///< validated; outlives the rehearsal
  FlowLimits limits;
  /// Devices that a pass needs, by [section][replica], numbered from 0; an empty list, here or in a section: separate
  /// devices.
  std::vector<std::vector<std::vector<int>>> devices;
  /// Cores by device for DeviceQueues, if times are for an otherwise idle core; empty: separate cores.
  std::vector<int> cores;
  /// Demands by device for DeviceQueues; empty: 1.
  std::vector<double> demands;
  bool streams = false;       ///< devices are streams and cores are GPUs: exchanges do not use them, all work of a
                              ///< section has its priority, and passes take no turns
  std::int64_t ahead = 2;     ///< units announced beyond the oldest unfinished one
  bool joined_norms = false;  ///< the norms of all trained sections are answered together
  std::function<StepEndOptions(const LaneKey& lane)> step_ends;  ///< empty: trained sections only step
  std::optional<RehearsedGenerator> generator = {};              ///< makes the samples of units
  RehearsalTimes times;
  /// The unit at whose end the rehearsal may stop, as soon as the intervals of all lanes reach it; empty: the last
  /// unit.
  std::optional<std::size_t> last = {};
};

/// A step, a validation, or a checkpoint.
struct RehearsalUnit {
  StepPlan plan;  ///< for a checkpoint, only its step is set
  bool checkpoint = false;
  double planning_ms = 0;  ///< time before the announcement; units are planned one after another
  /// Samples that are made before the unit is planned. Their version is there when every lane that publishes has
  /// published the step before it.
  std::optional<RehearsedRollout> rollout = {};
};

/// Makes the unit with number `at`.
using UnitMaker = std::function<RehearsalUnit(std::size_t at)>;

/// An interval in a lane's time. Small, since a rehearsal with thousands of devices has millions.
struct LaneInterval {
  enum class Kind : std::uint8_t { forward, backward, forward_backward, boundary, wait };
  double start_ms = 0;
  double end_ms = 0;
  StepId step;                             ///< step of a pass or boundary
  const std::string* waits_for = nullptr;  ///< reason of a wait, in Rehearsed::reasons; else null
  std::uint32_t batch = 0;                 ///< MicroBatchPlan::index
  Kind kind = Kind::wait;
  Pass pass = Pass::train;
};

struct Rehearsed {
  std::vector<double> unit_ends_ms;  ///< end times in the order of the units
  std::map<LaneKey, std::vector<LaneInterval>>
      lanes;                                   ///< intervals ordered by time, without gaps until the lane's last work
  std::shared_ptr<const WaitReasons> reasons;  ///< reasons that waits refer to
  std::vector<double> rollouts_ms;             ///< RehearsedRollouts::rollouts_ms()
};

class Rehearsal {
 public:
  explicit Rehearsal(RehearsalOptions options) : options_(std::move(options)) {}
  /// Plays this many units in order. Each unit is made when it is announced: unit_of(0), unit_of(1), ... Their plans'
  /// sequences begin at 0. Error `internal`, naming the waiting lanes, if nothing can continue.
  [[nodiscard]] Result<Rehearsed> play(std::size_t units, const UnitMaker& unit_of) const;
  [[nodiscard]] Result<Rehearsed> play(std::vector<RehearsalUnit> units) const;

 private:
  RehearsalOptions options_;
};

}  // namespace maestro
