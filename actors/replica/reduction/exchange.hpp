// SPDX-License-Identifier: Apache-2.0
// The interface of an exchange: a rank of a replica adds up, or collects, floats together with the same rank of other
// replicas, the members of the exchange. RankExchanges chooses the mechanism by the plan: NcclExchange or HostExchange.
//
// XC-1 (single job): next_job() returns a job only when the job before it has ended (job_done()).
// XC-2 (own shard): between sum_to_shards and gather_values the floats of a member hold the sum of its own shard; the
//       others are undefined.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/replica/reduction/rank_work.hpp"

namespace maestro {

/// The operations on the floats of an exchange, its gradients.
enum class Operation : std::uint8_t {
  sum,                   ///< every member receives the sum over all members
  sum_to_shards,         ///< each member receives the sum of its own shard; the rest of its floats is undefined
  gather_values,         ///< behind sum_to_shards: every member receives each shard from its owner
  gather_first_moments,  ///< likewise, for member 0 alone: each member stages its moments first
  gather_second_moments
};

/// Sends messages of exchanges to other replicas, and failures to the actor.
struct ExchangeOutbox {
  std::function<void(const caf::actor&, ShardHandOver)> hand_over;
  std::function<void(const caf::actor&, ShardRead)> shard_read;
  std::function<void(const caf::actor&, ReductionReady)> ready;
  std::function<void(const std::string& message)> broken;  ///< called from any thread
};

/// Work for the device of the rank, and its name in traces.
struct LabelledJob {
  std::string_view label;
  RankJob job;
};

/// Not thread-safe; belongs to the replica's actor.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Returns the memory, or the group, that the other members need.
  [[nodiscard]] virtual ReductionAddress address() const = 0;
  /// Returns the rings whose events go to landed().
  [[nodiscard]] virtual std::vector<std::uint32_t> ring_numbers() const { return {}; }
  virtual void connect(const Directory& directory, const ExchangeOutbox& outbox) = 0;
  /// Releases the communicator and the handles of the members, at the actor's end; no operation may follow.
  virtual void leave() = 0;

  /// Begins an operation. The gradients are final, or, for moments, free to be overwritten.
  virtual void begin(Operation operation) = 0;
  /// Returns the job that the operation is ready for, if any.
  [[nodiscard]] virtual std::optional<LabelledJob> next_job() = 0;
  /// The device has completed the job that next_job() returned last.
  virtual void job_done() = 0;
  /// Returns true when no operation runs.
  [[nodiscard]] virtual bool complete() const = 0;

  // Messages and events from outside. The first two return whether the event belongs to this exchange.
  virtual bool landed(std::uint32_t /*immediate*/) { return false; }
  virtual bool write_finished(std::uint64_t /*cookie*/) { return false; }
  virtual void handed_over(const ShardHandOver& /*shard*/) {}
  virtual void shard_read(const ShardRead& /*read*/) {}
  virtual void ready(const ReductionReady& /*ready*/) {}
};

}  // namespace maestro
