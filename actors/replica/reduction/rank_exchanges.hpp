// SPDX-License-Identifier: Apache-2.0
// A rank's exchanges: gradients of a tied parameter with the other stage that holds it; gradients with the other
// replicas; with sharded optimizer state, new values and, for a checkpoint, the optimizer state; and rows of tables
// that are trained by rows. Plain class; the replica's actor passes messages in and runs the jobs.
//
// All members of an exchange choose the same mechanism (WR-1): NcclExchange if each has a separate CUDA device and
// gradients are sent in f32, else HostExchange.
//
// RX-1 (first holders): the first ranks of a replica hold all of the optimizer state (Layout::holders): without ranks
//        that share experts, the first context part's. The others take no part in gathering it.
// RX-2 (unlike replicas): of replicas that differ in context only the first part's ranks exchange with other replicas;
//        each replica adds its parts up before (StepAction::add_ranks), and copies the results to them (spread).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "actors/replica/reduction/exchange.hpp"
#include "actors/replica/reduction/gradient_staging.hpp"
#include "runtime/schedule/step_end.hpp"

namespace maestro {

struct ReplicaSpec;

/// Not thread-safe; belongs to the replica's actor.
class RankExchanges {
 public:
  /// `spec` and the objects in it outlive the exchanges. `client`: client number of the rank's writes. Throws JobError.
  RankExchanges(const ReplicaSpec& spec, LayoutRank rank, std::uint32_t client);

  /// Returns the addresses by ReductionKind.
  [[nodiscard]] std::vector<ReductionAddress> addresses() const;
  [[nodiscard]] std::vector<std::uint32_t> ring_numbers() const;
  void connect(const Directory& directory, const ExchangeOutbox& outbox);
  /// Releases groups, at the actor's end.
  void leave();

  /// Return whether the event belonged to an exchange of this rank.
  bool landed(std::uint32_t immediate);
  bool write_finished(std::uint64_t cookie);
  void handed_over(const ShardHandOver& shard) { at(shard.kind)->handed_over(shard); }
  void shard_read(const ShardRead& read) { at(read.kind)->shard_read(read); }
  void ready(const ReductionReady& ready) { at(ready.kind)->ready(ready); }
  void rows_sent(const RowsSent& sent) { at(ReductionKind::rows)->rows_sent(sent); }

  /// Begins the rank's part of `action`, an exchange (is_exchange()); if the plan has none, it is complete at once.
  /// Moments are gathered in replica 0's gradients; other replicas' gradients are undefined afterwards.
  void begin(StepAction action);
  [[nodiscard]] std::optional<LabelledJob> next_job();
  void job_done();
  /// Returns the error of the gradients that the rank has encoded for other replicas since the last call.
  WireError take_wire_error();
  [[nodiscard]] bool complete() const { return current_ == nullptr || current_->complete(); }

 private:
  [[nodiscard]] Exchange* at(ReductionKind kind) const { return exchanges_.at(static_cast<std::size_t>(kind)).get(); }

  GradientStaging staging_;                                           // before the exchanges, which use it
  std::array<std::unique_ptr<Exchange>, reduction_kinds> exchanges_;  // by kind; null: not in the plan
  Exchange* moments_ = nullptr;  // exchange of moments, the replicas' group if they form one; null: takes no part
  Exchange* current_ = nullptr;  // exchange of the last operation
};

}  // namespace maestro
