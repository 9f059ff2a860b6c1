// SPDX-License-Identifier: Apache-2.0
// The actions of a section replica at a StepBoundary, as a list that is computed when the replica reaches the boundary.
// Pure; the replica's actor runs the actions, and its only state in between is the index of the current action.
//
// SB-1 (single action): an action begins when every rank of the replica has finished the action before it.
// SB-2 (equal exchanges): replicas of a section, and the two stages that hold a tied parameter, have the same exchanges
//       in the same order: the list depends on the boundary and on the plan, and for a replica only on whether it
//       writes the snapshot and whether it spreads, which add no exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/schedule/replica_lane.hpp"

namespace maestro {

enum class StepAction : std::uint8_t {
  add_ranks,              ///< completes the replica's gradients: fetches them, adds them up over its ranks
  exchange_tie,           ///< adds the gradient of a tied parameter up over the two stages that hold it
  sum,                    ///< adds gradients up over the replicas
  sum_to_shards,          ///< adds gradients up over the replicas; each replica holds only its shard's sum
  merge_rows,             ///< adds the gradients of tables' rows up; each replica holds only the sums of rows it owns
  spread,                 ///< copies what the first context part received in an exchange to the other parts
  timed_sum,              ///< waits as long as that sum takes, on emulated devices
  norm,                   ///< computes the sum of squares of the gradients
  await_total,            ///< reports it to the coordinator and waits for the NormTotal
  step,                   ///< clips the gradients and steps the optimizer
  gather_values,          ///< exchanges the values that each replica has stepped
  load_values,            ///< copies the other replicas' values out of the gradients
  gather_rows,            ///< exchanges the rows of tables that each replica has stepped
  gather_first_moments,   ///< collects the moments of all shards in the gradients of replica 0
  copy_first_moments,     ///< copies them into the snapshot
  gather_second_moments,  ///< collects the second moments, like the first
  copy_second_moments,
  write,    ///< copies the remaining state and queues the snapshot for writing
  clear,    ///< zeroes the gradients, which held moments or are not trained on
  publish,  ///< copies the values for generators, and hands them over
  report    ///< sends StepDone
};

/// Properties of the plan that the list depends on.
struct StepEndOptions {
  bool trained = false;
  std::size_t ranks = 1;           ///< ranks of the replica
  bool tied = false;               ///< another stage holds one of the section's parameters
  bool optimizer_sharded = false;  ///< optimizer state is sharded over the replicas (ZeRO stage 1)
  bool awaits_total = false;       ///< the coordinator answers the norm: it spans sections or stages, or decides on the
                                   ///< step
  bool writes_snapshot = false;    ///< replica 0 writes it
  bool timed_sum = false;          ///< emulated devices take time for the sum over the replicas
  bool fetches = false;            ///< gradients add up elsewhere during the step
  bool publishes = false;          ///< replica 0 hands the section's values to generators
  bool spreads = false;            ///< it has later context parts, which exchange nothing with other replicas
  bool exchanges_rows = false;     ///< other replicas train its tables by rows, too
};

/// Not thread-safe; belongs to the replica's actor.
class StepEnd {
 public:
  /// Creates an ended list: nothing is running.
  StepEnd() = default;
  StepEnd(const StepEndOptions& options, const StepBoundary& boundary);

  [[nodiscard]] const std::vector<StepAction>& actions() const { return actions_; }
  /// Returns the action that runs, or nothing after the last one.
  [[nodiscard]] std::optional<StepAction> current() const {
    return at_ < actions_.size() ? std::optional(actions_[at_]) : std::nullopt;
  }
  [[nodiscard]] bool at(StepAction action) const { return current() == action; }
  [[nodiscard]] bool contains(StepAction action) const;
  /// Replaces the optimizer's step and what depends on it by `clear`, while `await_total` runs: the gradients are not
  /// trained on.
  void skip_step();
  /// Moves to the next action (SB-1).
  void advance() { ++at_; }

 private:
  void add_snapshot(const StepEndOptions& options);
  void add_step(const StepEndOptions& options);

  std::vector<StepAction> actions_;
  std::size_t at_ = 0;
  bool publishes_ = false;
};

/// Returns whether the ranks exchange data with other replicas' ranks in this action.
[[nodiscard]] bool is_exchange(StepAction action);

}  // namespace maestro
