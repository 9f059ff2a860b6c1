// SPDX-License-Identifier: Apache-2.0
// Receives a replica rank's tensors in rings and sends credits to their senders. Owns the rings with their
// registrations. Not thread-safe; belongs to the replica's actor.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/replica/port_options.hpp"
#include "actors/services/network.hpp"
#include "runtime/core/pinned_block.hpp"
#include "sections/section_runner.hpp"
#include "transport/ring/input_ring.hpp"

namespace maestro {

/// Keeps the invariants RB-3 to RB-6 of ReplicaPorts.
class ReplicaInputs {
 public:
  using Arrived = std::function<void(Channel, std::uint64_t sequence)>;
  using SendCredit = std::function<void(const caf::actor&, Credit)>;

  /// The arguments outlive the rings.
  ReplicaInputs(const ReplicaPortsOptions& options, const PortSizes& sizes, Network& network);

  [[nodiscard]] std::vector<RingAddress> rings() const;
  [[nodiscard]] std::vector<std::uint32_t> ring_numbers() const;
  [[nodiscard]] bool owns_ring(std::uint32_t ring) const { return ring_index_.count(ring) != 0; }
  void connect(const Directory& directory, SendCredit send_credit);
  void leave() { senders_.clear(); }
  std::vector<RingArrivals> renew(Epoch epoch);
  void connect_renewed(const Directory& directory);

  Result<std::vector<std::pair<PortTensor, std::vector<ArrivedTensor::Copy>>>> open(const MicroBatchPlan& plan,
                                                                                    Direction direction);
  Status release(const MicroBatchPlan& plan);
  Status expect(const MicroBatchPlan& plan, const Arrived& arrived);
  Status landed(std::uint32_t immediate, const Arrived& arrived);
  Status handed_over(const PieceHandOver& piece, const Arrived& arrived);

 private:
  struct Ring {
    std::unique_ptr<InputRing> slots;
    std::unique_ptr<Region> region;         // region of its host memory
    std::unique_ptr<Region> device_region;  // region of its device memory
    std::string exported;                   // its device memory, for other processes
    // Memory of the former epoch:
    std::shared_ptr<AlignedMemory> former_memory = {};
    std::unique_ptr<Region> former_region = {};
    PinnedBlock former_pinned = {};
    PinnedBlock pinned = {};
  };
  void add_ring(Channel channel);
  /// Returns whether other processes may write pieces into this device's memory.
  [[nodiscard]] bool offers_device_memory(Channel channel) const;
  void offer_device_memory(Ring& ring, Channel channel) const;
  /// Pins a ring that other processes write into, if a device reads it.
  void pin(Ring& ring, Channel channel) const;
  /// Returns whether the sender's section is repeatable.
  [[nodiscard]] bool renewable(Channel channel) const;
  InputRing& ring(Channel channel) { return *rings_.at(channel).slots; }
  [[nodiscard]] Credit credit_of(const InputRing& ring) const;
  /// Sends credits to the senders of these sequences, which have entered the window (RB-3).
  void grant(const InputRing& ring, std::uint64_t first, std::uint64_t end);

  const ReplicaPortsOptions* options_;
  const PortSizes* sizes_;
  Network* network_;
  SendCredit send_credit_;
  std::map<Channel, Ring> rings_;
  std::map<std::uint32_t, InputRing*> ring_index_;      // rings by number; each has two
  std::map<Channel, std::vector<caf::actor>> senders_;  // senders into a ring, by replica
};

}  // namespace maestro
