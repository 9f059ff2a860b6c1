// The order of work on one section replica: a tiny state machine that says what may run next. Pure; the actor tells it
// what has arrived and what has finished.
//
// RL-1: forward passes run in the order of their tokens, one piece of work at a time.
// RL-2: a pass needs all its inputs and a free buffer for everything it sends; a forward pass also in_flight <
//       max_in_flight.
// RL-3: backward passes run in the order of their forward passes, each when its gradients are here, and go before
//       forward passes; so gradients add up in one order and in-flight memory is bounded.
// RL-4: a mark (end of step, snapshot) is passed only when every micro-batch before it has retired; nothing after it
//       starts before.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "runtime/core/ids.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

struct LaneOptions {
  bool trained = false;
  bool awaits_gradient = false;  ///< backward waits for gradients from downstream
  std::int64_t max_in_flight = 1;
};

/// A mark between micro-batches.
struct LaneMark {
  enum class Kind : std::uint8_t {
    end_step,  ///< all micro-batches of the step are done: reduce, step the optimizer
    snapshot   ///< copy the state for a checkpoint after `step`
  };
  Kind kind = Kind::end_step;
  StepId step;
  Pass pass = Pass::train;
  std::string staging;  ///< of a snapshot: folder to write into
};

/// Whether there is a buffer to write into, for every port.
struct BuffersFree {
  bool outputs = true;
  bool gradients = true;  ///< what goes upstream
};

/// Not thread-safe; belongs to the replica's actor.
class ReplicaLane {
 public:
  enum class Kind : std::uint8_t { forward, forward_backward, backward, mark };
  struct Work {
    Kind kind = Kind::forward;
    const MicroBatchPlan* batch = nullptr;  ///< valid until finished()
    LaneMark mark;
  };

  explicit ReplicaLane(LaneOptions options) : options_(options) {}

  void enqueue(MicroBatchPlan plan) { items_.push_back({std::move(plan), std::nullopt, false}); }
  void enqueue(LaneMark mark) { items_.push_back({{}, std::move(mark), false}); }
  /// All pieces of a sequence are here; may come before the token that needs them.
  void arrived(EdgeId edge, bool gradient, std::uint64_t sequence) { arrived_.emplace(edge, gradient, sequence); }

  /// What to run now, and marks the lane busy; nothing when busy or when something is missing.
  std::optional<Work> next(BuffersFree free);
  /// The work from next() is done. Returns the plan of a micro-batch that retired with it.
  std::optional<MicroBatchPlan> finished();

  [[nodiscard]] bool busy() const { return running_.has_value(); }
  [[nodiscard]] bool idle() const { return !busy() && items_.empty(); }
  /// The micro-batch whose turn is next, and what it still misses: for "who waits for whom".
  [[nodiscard]] const MicroBatchPlan* waiting_batch() const;
  [[nodiscard]] const ArrivalPlan* missing_arrival() const;

 private:
  struct Item {
    MicroBatchPlan batch;
    std::optional<LaneMark> mark;
    bool forwarded = false;
  };
  [[nodiscard]] bool here(const MicroBatchPlan& batch, bool gradients) const;
  [[nodiscard]] bool splits(const MicroBatchPlan& batch) const {
    return options_.trained && options_.awaits_gradient && batch.pass == Pass::train;
  }
  std::optional<Work> start(Kind kind, Item& item);

  LaneOptions options_;
  std::deque<Item> items_;  // retired from the front
  std::int64_t in_flight_ = 0;
  std::set<std::tuple<EdgeId, bool, std::uint64_t>> arrived_;
  std::optional<Kind> running_;
  Item* running_item_ = nullptr;
};

}  // namespace maestro
