// Moves the gradient shards of one rank of a replica for ShardedReduction, among the ranks of its place in other
// replicas, its members: in place inside one process, by RMA between processes. Members are all replicas of a section,
// or the first and the last stage of one pipeline, which share a tied parameter. Plain class; the actor passes messages
// in.
//
// RR-1: a neighbour reads this replica's gradient in place only between local_ready and its ShardRead or the sum's
//       arrival; the optimizer runs after both.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "actors/messages.hpp"
#include "actors/network.hpp"
#include "runtime/collective/sharded_reduction.hpp"
#include "runtime/core/aligned_memory.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

struct ReplicaReductionOptions {
  struct Member {
    SectionId section;
    ReplicaIndex replica;
    friend bool operator==(const Member&, const Member&) = default;
  };
  std::vector<Member> members;  ///< in the order in which gradients are added
  std::size_t self = 0;         ///< index in members
  bool tie = false;             ///< of a tied parameter
  std::uint32_t layout_rank = 0;
  ProcessRank rank;
  std::span<float> gradients;
  bool remote = false;
  std::uint32_t client = 0;  ///< number of the rank's writes
};

/// Not thread-safe; belongs to the replica's actor. sum() and copy_sums() run on the device thread between two messages
/// of the actor, which is busy then.
class ReplicaReduction {
 public:
  using Deliver = std::function<void(const caf::actor&, ShardHandOver)>;
  ReplicaReduction(const ReplicaReductionOptions& options, Network& network);

  [[nodiscard]] bool needed() const { return options_.members.size() > 1; }
  [[nodiscard]] ReductionAddress address() const { return address_; }
  [[nodiscard]] std::vector<std::uint32_t> ring_numbers() const;
  void connect(const Directory& directory, Deliver deliver);

  /// The local gradient of `step` is final: its parts go to their owners.
  void begin(StepId step);
  /// True when the event was one of this reduction's.
  bool landed(std::uint32_t immediate);
  void handed_over(const ShardHandOver& shard);
  void shard_read(StepId step) { round(step).send_done(); }
  bool write_finished(std::uint64_t cookie);

  /// All parts of the own shard are here: run sum() on the device, then summed().
  [[nodiscard]] bool may_sum() { return active_ && round(step_).may_sum(); }
  void sum(const OperatorTable& ops);
  void summed();
  /// The sums of all other shards are here: run copy_sums() on the device, then copied().
  [[nodiscard]] bool may_copy() { return active_ && round(step_).may_copy(); }
  void copy_sums();
  /// Neighbours of this process learn that their sums were read.
  void copied(const std::function<void(const caf::actor&, ShardRead)>& tell_read);
  /// Every replica may step its optimizer when its own round is complete.
  [[nodiscard]] bool complete() { return active_ && round(step_).complete(); }
  void finish();
  [[nodiscard]] bool active() const { return active_; }

 private:
  struct Peer {
    caf::actor actor;
    ReductionAddress address;
    ProcessRank rank;
    bool local = true;
  };
  ShardedReduction& round(StepId step);
  StepId full_step(std::uint16_t wrapped) const;
  void send(std::size_t peer, bool sum, ShardRange range);
  [[nodiscard]] ShardRange own() const { return shard(self()); }
  [[nodiscard]] ShardRange shard(std::size_t index) const {
    return shard_range(options_.gradients.size(), options_.members.size(), index);
  }
  [[nodiscard]] std::size_t self() const { return options_.self; }
  [[nodiscard]] std::size_t replicas() const { return options_.members.size(); }
  [[nodiscard]] std::size_t largest_shard() const;

  ReplicaReductionOptions options_;
  Network* network_;
  Deliver deliver_;
  ReductionAddress address_;
  AlignedMemory parts_;  // one shard per sending replica, written remotely
  std::unique_ptr<Region> parts_region_;
  std::unique_ptr<Region> gradient_region_;
  std::vector<Peer> peers_;  // by member
  std::map<StepId, ShardedReduction> rounds_;
  std::map<std::pair<StepId, std::size_t>, std::span<const float>> handed_parts_;
  std::map<std::pair<StepId, std::size_t>, std::span<const float>> handed_sums_;
  std::map<std::pair<StepId, std::size_t>, std::size_t> landed_chunks_;  // (step, sender * 2 + sum)
  std::map<std::uint64_t, StepId> writes_;
  std::uint64_t next_cookie_;
  StepId step_;
  bool active_ = false;
};

}  // namespace maestro
