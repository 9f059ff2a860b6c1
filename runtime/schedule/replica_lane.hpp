// SPDX-License-Identifier: Apache-2.0
// The order of work on a section replica: a small state machine that selects the next work item. Pure; the actor
// reports arrivals and finished work to it.
//
// RL-1 (forward order): forward passes run in the order of their work items, one at a time.
// RL-2 (conditions of a pass): a pass needs all its inputs, on every rank, and a free buffer for everything it sends,
//       and the phase of its group open; a forward pass also needs in_flight < max_in_flight.
// RL-3 (backward order, work conserving): backward passes run by their backward_order, each when its gradients have
//       arrived; so gradients add up in a fixed order and in-flight memory is bounded. If both a forward and a backward
//       pass could run, the plan decides which goes first; if only one of them could, it runs: a lane with runnable
//       work is never idle. A lane whose passes take turns on devices runs them in the plan's order: work that the plan
//       puts later would wait for its turn, and keep the lane from the work before it.
// RL-4 (marks separate steps): a mark (end of step, snapshot) is passed only when every micro-batch before it has
//       retired; nothing after it starts before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

struct LaneOptions {
  bool runs_backward = false;  ///< in forward_backward mode, frozen or not
  bool splits_passes = false;  ///< the backward pass runs separately, after gradients from downstream if there are any
  std::int64_t max_in_flight = 1;
};

/// A mark between micro-batches.
struct StepBoundary {
  enum class Kind : std::uint8_t {
    end_step,  ///< all micro-batches of the step are done: reduce, step the optimizer
    snapshot,  ///< copy the state for a checkpoint after `step`
    publish    ///< hand over the values before `step` + 1, which a section has at the start
  };
  Kind kind = Kind::end_step;
  StepId step;
  Pass pass = Pass::train;
  std::string staging;      ///< folder to write a snapshot into
  std::int64_t tokens = 1;  ///< end_step: the section's tokens in the step; 0: no replica had a micro-batch
  bool shadow = false;      ///< snapshot: for a checkpoint in memory
};

/// Free buffers: whether every port has one to write into.
struct BuffersFree {
  bool outputs = true;
  bool gradients = true;  ///< gradients that go upstream
};

/// A lane's micro-batch. Shared: its pass runs on a device thread, which may outlive the lane when the run ends early.
using SharedMicroBatch = std::shared_ptr<const MicroBatchPlan>;

/// Not thread-safe; belongs to the replica's actor. O(max_in_flight) per call, however many work items are queued.
class ReplicaLane {
 public:
  enum class Kind : std::uint8_t { forward, forward_backward, backward, mark };
  struct Work {
    Kind kind = Kind::forward;
    SharedMicroBatch batch;  ///< micro-batch of a pass
    StepBoundary mark;
    /// Returns the turns of a pass.
    [[nodiscard]] const std::vector<DeviceTurn>& turns() const {
      return kind == Kind::backward ? batch->backward_turns : batch->forward_turns;
    }
  };

  explicit ReplicaLane(LaneOptions options) : options_(options) {}

  void enqueue(MicroBatchPlan plan);
  void enqueue(StepBoundary mark);
  /// Records that all pieces of a sequence are at a rank; may precede the work item that needs them. Required for every
  /// arrival of a plan, also for an arrival without pieces.
  void arrived(Channel channel, std::uint64_t sequence, LayoutRank rank = {});
  /// Opens a phase: from now on passes of this phase of the group may run. Phase 0 is always open.
  void open_phase(StepId step, std::uint32_t group, std::uint32_t phase) { phases_[{step.value(), group}] = phase; }

  /// Returns the work to run now and marks the lane busy; returns nothing if the lane is busy or the next work lacks
  /// something.
  std::optional<Work> next(BuffersFree free);
  /// Records that the work from next() is done. Returns the micro-batch that retired with it, if any.
  SharedMicroBatch finished();

  [[nodiscard]] bool busy() const { return running_.has_value(); }
  [[nodiscard]] bool idle() const { return !busy() && items_.empty(); }
  /// Return the micro-batch whose turn is next and the first arrival that it lacks, for reports of waiting replicas;
  /// null if there is none.
  [[nodiscard]] const MicroBatchPlan* waiting_batch() const;
  [[nodiscard]] const ArrivalPlan* missing_arrival() const;

 private:
  using ArrivalKey = std::tuple<Channel, std::uint64_t, LayoutRank>;  // channel, sequence, rank
  static ArrivalKey key_of(const ArrivalPlan& arrival) { return {arrival.channel, arrival.sequence, arrival.rank}; }
  enum class State : std::uint8_t { waiting, forwarded, retired };
  struct Item {
    SharedMicroBatch batch;  // empty for a mark
    std::optional<StepBoundary> mark;
    State state = State::waiting;
  };
  [[nodiscard]] bool here(const ArrivalPlan& arrival) const {
    return std::ranges::binary_search(arrived_, key_of(arrival));
  }
  [[nodiscard]] bool here(const MicroBatchPlan& batch, Direction direction) const;
  void forget(const ArrivalPlan& arrival);
  [[nodiscard]] bool open(const MicroBatchPlan& batch, std::uint32_t phase) const;
  [[nodiscard]] bool splits(const MicroBatchPlan& batch) const {
    return options_.runs_backward && options_.splits_passes && batch.pass == Pass::train;
  }
  [[nodiscard]] Item* next_forward(BuffersFree free);
  [[nodiscard]] Item* next_backward(BuffersFree free);
  [[nodiscard]] std::optional<std::size_t> backward_turn() const;  // of items_
  std::optional<Work> start(Kind kind, Item& item);
  void retire_front();

  LaneOptions options_;
  std::deque<Item> items_;  // retired items leave from the front
  std::int64_t in_flight_ = 0;
  // Counts in the step whose backward passes run: forward passes started, backward passes done.
  std::uint32_t forwards_ = 0;
  std::uint32_t backwards_ = 0;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint32_t> phases_;  // (step, group) -> last phase open
  std::vector<ArrivalKey> arrived_;                                          // sorted; few, as slots are
  std::optional<Kind> running_;
  Item* running_item_ = nullptr;
};

}  // namespace maestro
