// SPDX-License-Identifier: Apache-2.0
// The ports of a replica's rank: rings for receiving, buffer pools for sending, and links to receivers. Plain class;
// the actor passes messages in and sends messages for `Outbox`.
//
// RB-1 (returned buffers): a buffer returns to its pool when all its pieces were received (in-process) or sent (WP-1).
// RB-2 (no waiting): sequence numbers and credits depend only on plans and messages; this class never waits.
// RB-3 (one credit): when a sequence enters the window and its work item has arrived, each of its senders receives
//       exactly one credit. A work item's cost does not depend on the number of replicas at the other end.
// RB-4 (device memory): a device's output is sent from its memory, unless a CPU of the process reads it too. If a
//       receiver offers its device memory and the sender can write there (PieceTarget), pieces are written there, else
//       into host memory.
// RB-5 (begun anew): after renew_inputs() pieces from senders of an earlier epoch do not change a ring.
// RB-6 (pinned): host memory that devices of this process copy to or from is pinned. Other memory is not, since
//       pinned memory is fully resident.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "actors/replica/replica_inputs.hpp"
#include "actors/replica/replica_outputs.hpp"

namespace maestro {

/// Not thread-safe; belongs to the replica's actor. connect() may call the device's driver.
class ReplicaPorts {
 public:
  ReplicaPorts(const ReplicaPortsOptions& options, Network& network, PortEvents events);
  ReplicaPorts(const ReplicaPorts&) = delete;  // inputs and outputs refer to its options
  ReplicaPorts& operator=(const ReplicaPorts&) = delete;

  [[nodiscard]] std::vector<RingAddress> rings() const { return inputs_.rings(); }
  [[nodiscard]] std::vector<std::uint32_t> ring_numbers() const { return inputs_.ring_numbers(); }
  /// Returns the client number of this rank's writes.
  [[nodiscard]] std::uint32_t client() const { return client_; }
  void connect(const Directory& directory, Outbox outbox);
  /// Gives the rings of repeatable senders, which begin anew under this epoch, new memory and numbers. Returns what the
  /// rings hold. Former memory stays until the next call, since writes may still be in flight.
  std::vector<RingArrivals> renew_inputs(Epoch epoch) { return inputs_.renew(epoch); }
  /// Connects to the new senders of those rings.
  void connect_renewed(const Directory& directory) { inputs_.connect_renewed(directory); }
  /// Drops the handles of peers at the actor's end. Peers hold handles of this actor, and the cycle would keep both.
  void leave();

  [[nodiscard]] BuffersFree buffers_free() const { return outputs_.buffers_free(); }
  /// Returns the tensors that arrived for a micro-batch: inputs, or gradients of outputs.
  Result<std::vector<std::pair<PortTensor, std::vector<ArrivedTensor::Copy>>>> open(const MicroBatchPlan& plan,
                                                                                    Direction direction) {
    return inputs_.open(plan, direction);
  }
  /// Returns buffers for the tensors that a pass sends: outputs, or gradients of inputs.
  std::vector<SendBuffer> acquire(const MicroBatchPlan& plan, Direction direction) {
    return outputs_.acquire(plan, direction);
  }
  /// Sends a completed pass' pieces as credits allow.
  Status send(const MicroBatchPlan& plan, std::vector<SendBuffer> buffers) {
    return outputs_.send(plan, std::move(buffers));
  }
  /// Releases a retired micro-batch's slots, which become credits.
  Status release(const MicroBatchPlan& plan) { return inputs_.release(plan); }

  /// Receives completed sequences.
  using Arrived = ReplicaInputs::Arrived;
  Status expect(const MicroBatchPlan& plan, const Arrived& arrived) { return inputs_.expect(plan, arrived); }
  Status landed(std::uint32_t immediate, const Arrived& arrived) { return inputs_.landed(immediate, arrived); }
  Status handed_over(const PieceHandOver& piece, const Arrived& arrived) { return inputs_.handed_over(piece, arrived); }
  Status credit(const Credit& credit) { return outputs_.credit(credit); }
  /// Continues after a write of this replica.
  void write_finished(std::uint64_t cookie) { outputs_.writer().write_finished(cookie); }
  /// Continues after a copy (PortEvents::copied).
  Status copied(std::uint64_t cookie, const std::string& failure) { return outputs_.writer().copied(cookie, failure); }
  /// Returns the piece that waits for a credit, if any, for "who waits for whom".
  using WaitingSend = ReplicaOutputs::WaitingSend;
  [[nodiscard]] std::optional<WaitingSend> waiting_send() const { return outputs_.waiting_send(); }
  /// Adds the bytes of the tensors sent since the last call.
  void take_sent(SentBytes& sum) { outputs_.take_sent(sum); }
  /// Adds the times of this replica's pieces that have arrived since the last call.
  void take_transfers(ChannelTimes& sum) { outputs_.take_transfers(sum); }
  [[nodiscard]] bool owns_ring(std::uint32_t ring) const { return inputs_.owns_ring(ring); }

 private:
  ReplicaPortsOptions options_;
  PortSizes sizes_;
  std::uint32_t client_;
  ReplicaInputs inputs_;
  ReplicaOutputs outputs_;
};

}  // namespace maestro
