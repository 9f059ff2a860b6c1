// SPDX-License-Identifier: Apache-2.0
// The interface of an exchange: a replica's rank adds up or collects floats together with the same rank of other
// replicas, the exchange's members. RankExchanges chooses the mechanism by the plan: NcclExchange or HostExchange, and
// RowExchange for rows of tables.
//
// XC-1 (single job): next_job() returns a job only after the job before it has ended (job_done()).
// XC-2 (own shard): between sum_to_shards and gather_values a member's floats hold the sum of its own shard; its other
//       floats are undefined.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/replica/reduction/rank_work.hpp"
#include "runtime/core/gradient_wire.hpp"

namespace maestro {

/// An operation on an exchange's floats, the gradients.
enum class Operation : std::uint8_t {
  sum,                   ///< every member receives the sum over all members
  sum_to_shards,         ///< each member receives the sum of its own shard; the rest of its floats is undefined
  gather_values,         ///< every member receives each shard from its owner; follows sum_to_shards
  gather_first_moments,  ///< only member 0 receives each shard, after each member has staged its moments
  gather_second_moments
};

/// Functions that send messages of exchanges to other replicas, and failures to the actor.
struct ExchangeOutbox {
  std::function<void(const caf::actor&, ShardHandOver)> hand_over;
  std::function<void(const caf::actor&, ShardRead)> shard_read;
  std::function<void(const caf::actor&, ReductionReady)> ready;
  std::function<void(const caf::actor&, RowsSent)> rows_sent;
  std::function<void(const std::string& message)> broken;  ///< called from any thread
};

/// A job for the rank's device, and its name in traces.
struct LabelledJob {
  std::string_view label;
  RankJob job;
};

/// Not thread-safe; belongs to the replica's actor.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Returns the address of the memory or group that the other members need.
  [[nodiscard]] virtual ReductionAddress address() const = 0;
  /// Returns the rings whose events go to landed().
  [[nodiscard]] virtual std::vector<std::uint32_t> ring_numbers() const { return {}; }
  virtual void connect(const Directory& directory, const ExchangeOutbox& outbox) = 0;
  /// Releases the communicator and the members' handles at the actor's end; no operation may follow.
  virtual void leave() = 0;

  /// Begins an operation. The gradients must be final, or, for moments, free to be overwritten.
  virtual void begin(Operation operation) = 0;
  /// Returns the operation's next job, if it is ready.
  [[nodiscard]] virtual std::optional<LabelledJob> next_job() = 0;
  /// Ends the job that next_job() returned last; the device has completed it.
  virtual void job_done() = 0;
  /// Returns the error of what this member has encoded since the last call.
  virtual WireError take_wire_error() { return {}; }
  /// Returns whether no operation is running.
  [[nodiscard]] virtual bool complete() const = 0;

  // Messages and events from outside. The first two return whether the event belongs to this exchange.
  virtual bool landed(std::uint32_t /*immediate*/) { return false; }
  virtual bool write_finished(std::uint64_t /*cookie*/) { return false; }
  virtual void handed_over(const ShardHandOver& /*shard*/) {}
  virtual void shard_read(const ShardRead& /*read*/) {}
  virtual void ready(const ReductionReady& /*ready*/) {}
  virtual void rows_sent(const RowsSent& /*sent*/) {}
};

}  // namespace maestro
