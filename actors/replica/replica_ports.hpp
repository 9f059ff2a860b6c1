// SPDX-License-Identifier: Apache-2.0
// The ports of a rank of a section replica: rings it receives into, buffer pools it sends from, links to its receivers.
// Plain class; the actor passes messages in, and sends those that `Outbox` receives.
//
// RB-1 (returned buffers): a buffer returns to its pool when every piece of it was received (in-process) or has left
//       (WP-1).
// RB-2 (no waiting): sequence numbers and credits come from plans and messages alone; this class never waits.
// RB-3 (one credit): when a sequence enters the window and its work item has arrived, each of its senders receives
//       exactly one credit. The cost of a work item does not depend on the number of replicas at the other end.
// RB-4 (device memory): output of a device leaves from its memory, unless a CPU of the process reads it too. If a
//       receiver offers memory of its device and the sender can write there (PieceTarget), pieces go there; else they
//       go to host memory.
// RB-5 (begun anew): after renew_inputs() nothing that senders of an earlier epoch sent changes a ring.
// RB-6 (pinned): host memory that devices of this process copy to and from is pinned. Other memory is not, since
//       pinned memory is resident in full.
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
  /// Repeatable sections begin anew, under this epoch: their rings get new memory and numbers. Returns what the rings
  /// hold. Former memory stays until the next call, as writes may still be on their way.
  std::vector<RingArrivals> renew_inputs(Epoch epoch) { return inputs_.renew(epoch); }
  /// Connects to the new senders of those rings.
  void connect_renewed(const Directory& directory) { inputs_.connect_renewed(directory); }
  /// Drops the handles of peers, at the actor's end: they hold handles of this actor, and neither would be freed.
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
  /// The pass is done: its pieces leave as credits allow.
  Status send(const MicroBatchPlan& plan, std::vector<SendBuffer> buffers) {
    return outputs_.send(plan, std::move(buffers));
  }
  /// The micro-batch has retired: slots become credits.
  Status release(const MicroBatchPlan& plan) { return inputs_.release(plan); }

  /// Completed sequences are reported through `arrived`.
  using Arrived = ReplicaInputs::Arrived;
  Status expect(const MicroBatchPlan& plan, const Arrived& arrived) { return inputs_.expect(plan, arrived); }
  Status landed(std::uint32_t immediate, const Arrived& arrived) { return inputs_.landed(immediate, arrived); }
  Status handed_over(const PieceHandOver& piece, const Arrived& arrived) { return inputs_.handed_over(piece, arrived); }
  Status credit(const Credit& credit) { return outputs_.credit(credit); }
  /// A write of this replica has ended.
  void write_finished(std::uint64_t cookie) { outputs_.writer().write_finished(cookie); }
  /// A copy has ended (PortEvents::copied).
  Status copied(std::uint64_t cookie, const std::string& failure) { return outputs_.writer().copied(cookie, failure); }
  /// Returns the piece that waits for a credit, if any, for "who waits for whom".
  using WaitingSend = ReplicaOutputs::WaitingSend;
  [[nodiscard]] std::optional<WaitingSend> waiting_send() const { return outputs_.waiting_send(); }
  /// Adds the bytes of the tensors sent since the last call.
  void take_sent(SentBytes& sum) { outputs_.take_sent(sum); }
  /// Adds the times of the pieces that have arrived since the last call, as far as this replica sent them.
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
