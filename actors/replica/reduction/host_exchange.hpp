// SPDX-License-Identifier: Apache-2.0
// Moves the gradient shards of one rank of a replica for ReductionRound, among the ranks of its place in other
// replicas, its members: in place inside one process, by RMA between processes. Members are all replicas of a section,
// or the first and the last stage of one pipeline, which share a tied parameter. Plain class; the actor passes messages
// in.
//
// Of replicas that share their moments, a sum stays with its owner (Options::held), whose optimizer steps the shard's
// parameters; their values are then released in its place. For a checkpoint the moments are gathered by member 0: it
// tells the others when its gradients may be written (a part without content), and each releases its shard to it alone.
//
// RR-1: a neighbour reads this replica's gradient in place only between local_ready and its ShardRead or the sum's
//       arrival; of what it may read, only the own shard changes before both.
// RR-2: members run the same rounds and count them alike; those that exchange anything are at most one round apart.
// RR-3: a member writes to another's gradients only when it has the other's part of the round.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/plan/reduction_paths.hpp"
#include "actors/services/network.hpp"
#include "runtime/collective/reduction_round.hpp"
#include "runtime/core/aligned_memory.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

struct HostExchangeOptions {
  std::vector<ReductionMember> members;  ///< in the order in which gradients are added; fewer than two: nothing to do
  std::size_t self = 0;                  ///< index in members
  ReductionKind kind = ReductionKind::replicas;
  bool held = false;  ///< the sum waits for release()
  std::uint32_t layout_rank = 0;
  ProcessId rank;
  std::span<float> gradients;
  bool remote = false;
  std::uint32_t client = 0;  ///< number of the rank's writes
};

/// Not thread-safe; belongs to the replica's actor. sum() and copy_sums() run on the device thread between two messages
/// of the actor, which is busy then.
class HostExchange {
 public:
  using Deliver = std::function<void(const caf::actor&, ShardHandOver)>;
  HostExchange(const HostExchangeOptions& options, Network& network);

  [[nodiscard]] bool needed() const { return options_.members.size() > 1; }
  [[nodiscard]] ReductionAddress address() const { return address_; }
  [[nodiscard]] std::vector<std::uint32_t> ring_numbers() const;
  void connect(const Directory& directory, Deliver deliver);

  /// The local gradient of this round is final: its parts go to their owners.
  void begin();
  /// True when the event was one of this reduction's.
  bool landed(std::uint32_t immediate);
  void handed_over(const ShardHandOver& shard);
  void shard_read(std::uint64_t number) { round(number).send_done(); }
  bool write_finished(std::uint64_t cookie);

  /// All parts of the own shard are here: run sum() on the device, then summed().
  [[nodiscard]] bool may_sum() { return active_ && round(round_).may_sum(); }
  void sum(const OperatorTable& ops);
  void summed();
  /// The own sum is complete and held: release() sends what has taken its place.
  [[nodiscard]] bool holds_sum() { return active_ && round(round_).holds_sum(); }
  void release();
  /// The sums of all other shards are here: run copy_sums() on the device, then copied().
  [[nodiscard]] bool may_copy() { return active_ && round(round_).may_copy(); }
  void copy_sums();
  /// PeerList of this process learn that their sums were read.
  void copied(const std::function<void(const caf::actor&, ShardRead)>& tell_read);
  /// Every replica may step its optimizer when its own round is complete.
  [[nodiscard]] bool complete() { return active_ && round(round_).complete(); }
  void finish();
  /// Drops the handles of the members, at the actor's end.
  void leave() {
    for (Peer& peer : peers_) peer.actor = nullptr;
  }
  [[nodiscard]] bool active() const { return active_; }

 private:
  struct Peer {
    caf::actor actor;
    ReductionAddress address;
    ProcessId rank;
    bool local = true;
  };
  using RoundAndSender = std::pair<std::uint64_t, std::size_t>;
  ReductionRound& round(std::uint64_t number);
  void send(std::size_t peer, bool sum);
  void write(const Peer& peer, bool sum, WriteRequest request);
  [[nodiscard]] std::size_t expected_parts() const;
  [[nodiscard]] std::size_t expected_sums() const;
  /// Whether what this member makes of its shard goes to `peer`.
  [[nodiscard]] bool sums_go_to(std::size_t peer) const { return peer != self() && (!gathers() || peer == 0); }
  [[nodiscard]] bool parts_go_to(std::size_t peer) const { return peer != self() && (!gathers() || self() == 0); }
  [[nodiscard]] bool gathers() const { return options_.kind == ReductionKind::moments; }
  /// Bytes of the part that a member sends to the owner of `shard`.
  [[nodiscard]] std::size_t part_bytes(ShardRange shard) const { return (gathers() ? 1 : shard.count) * sizeof(float); }
  [[nodiscard]] ShardRange own() const { return shard(self()); }
  [[nodiscard]] ShardRange shard(std::size_t index) const {
    return shard_range(options_.gradients.size(), options_.members.size(), index);
  }
  [[nodiscard]] std::size_t self() const { return options_.self; }
  [[nodiscard]] std::size_t replicas() const { return options_.members.size(); }
  [[nodiscard]] std::size_t largest_shard() const;

  HostExchangeOptions options_;
  Network* network_;
  Deliver deliver_;
  ReductionAddress address_;
  AlignedMemory parts_;  // one shard per sending replica, written remotely
  std::unique_ptr<Region> parts_region_;
  std::unique_ptr<Region> gradient_region_;
  std::vector<Peer> peers_;  // by member
  std::map<std::uint64_t, ReductionRound> rounds_;
  std::map<RoundAndSender, std::span<const float>> handed_parts_;
  std::map<RoundAndSender, std::span<const float>> handed_sums_;
  std::map<RoundAndSender, std::size_t> landed_chunks_;  // (round, sender * 2 + sum)
  std::map<std::uint64_t, std::uint64_t> writes_;        // round by cookie
  std::uint64_t next_cookie_;
  std::uint64_t round_ = 0;  // the last one begun, from 1
  bool active_ = false;
};

}  // namespace maestro
