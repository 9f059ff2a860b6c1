// SPDX-License-Identifier: Apache-2.0
// An exchange in host memory, in a fixed order (ReductionRound): in place inside a process, by RMA between processes.
// Gradients in device memory are staged: copied to host memory before an operation and back after it (GradientStaging).
// Plain class; the actor passes messages in.
//
// Members are all replicas of a section, or the first and the last stage of a pipeline, which share a tied parameter.
// For a checkpoint, member 0 collects the optimizer state: it sends the others an empty part when its gradients may be
// written, and each sends its shard only to member 0.
//
// HX-1 (in-place reads): a member of the same process reads this member's gradients in place only between begin() and
//       its ShardRead or the arrival of the sum; in that time this member changes only its shard.
// HX-2 (equal rounds): members run and count the same rounds; members that exchange data are at most one round apart.
// HX-3 (ready receivers): a member writes to another's gradients, or to its slots, only after it has received the
//       other's part of the round.
//
// Gradients in another format than f32 (GradientWire) are encoded before a round, in WireSlots, which take the
// gradients' place in HX-1 and HX-3.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/replica/reduction/exchange.hpp"
#include "actors/replica/reduction/gradient_staging.hpp"
#include "actors/replica/reduction/member_links.hpp"
#include "actors/replica/reduction/wire_slots.hpp"
#include "actors/services/network.hpp"
#include "runtime/collective/reduction_round.hpp"
#include "runtime/core/aligned_memory.hpp"
#include "runtime/ops/parameters.hpp"

namespace maestro {

struct HostExchangeOptions {
  std::vector<ReductionMember> members;  ///< two or more, in the order of adding gradients
  std::size_t self = 0;                  ///< index in members
  ReductionKind kind = ReductionKind::replicas;
  LayoutRank layout_rank;
  ProcessId process;
  std::span<float> gradients;                        ///< gradients in the device's memory
  const GradientStaging* staging = nullptr;          ///< stages at least these gradients; outlives the exchange
  std::function<void(ParameterBuffer)> stage_shard;  ///< writes this member's moments to their place in `gradients`
  const OperatorTable* host_ops = nullptr;           ///< adds gradients up
  WireFormats wire;                                  ///< formats of parts and sums; anything but f32 needs WireSlots
  std::size_t learned = 0;   ///< first gradient that counts (Parameters::learned_elements); from it on all are in f32
  bool remote = false;       ///< the job has other processes
  std::uint32_t client = 0;  ///< client number of the rank's writes
};

/// Its jobs run on the device's thread; the actor does not use the exchange until it receives a job's result.
class HostExchange final : public Exchange {
 public:
  HostExchange(HostExchangeOptions options, Network& network);

  [[nodiscard]] ReductionAddress address() const override { return address_; }
  [[nodiscard]] std::vector<std::uint32_t> ring_numbers() const override;
  void connect(const Directory& directory, const ExchangeOutbox& outbox) override;
  void leave() override { links_.leave(); }

  void begin(Operation operation) override;
  [[nodiscard]] std::optional<LabelledJob> next_job() override;
  void job_done() override;
  WireError take_wire_error() override { return std::exchange(error_, {}); }
  [[nodiscard]] bool complete() const override;

  bool landed(std::uint32_t immediate) override;
  bool write_finished(std::uint64_t cookie) override;
  void handed_over(const ShardHandOver& shard) override;
  void shard_read(const ShardRead& read) override { round(read.round).send_done(); }

 private:
  using RoundAndSender = std::pair<std::uint64_t, std::size_t>;
  /// An operation first copies staged gradients to the host, and then encodes parts if their format is not f32; after
  /// that the round determines the jobs.
  enum class State : std::uint8_t { idle, to_host, encode, round };
  enum class Work : std::uint8_t { none, to_host, encode, sum, copy, to_device };

  [[nodiscard]] LabelledJob job_of(Work work);
  /// Continues once the gradients are in host memory.
  void begin_on_host();
  void begin_round();
  /// Returns whether the round has reached the operation's end.
  [[nodiscard]] bool round_over() const;
  /// Return the gradients that this operation copies to the host before the round, or back after it.
  [[nodiscard]] std::span<float> copied_to_host() const;
  [[nodiscard]] std::span<float> copied_to_device() const;
  ReductionRound& round(std::uint64_t number);
  [[nodiscard]] const ReductionRound& current() const { return rounds_.at(round_); }
  void send(std::size_t peer, bool sum);
  // Jobs, on the device's thread.
  /// Adds the parts up, and encodes the sum if sums are encoded.
  void sum_up();
  void add_parts();
  /// Returns elements [first, first + room.size()) of a member's part of this member's shard; `room` may hold them.
  [[nodiscard]] std::span<const float> part_of(std::size_t member, std::size_t first, std::span<float> room) const;
  void stage_moments() const;
  void copy_sums();
  void release();
  void release_reads();

  [[nodiscard]] std::size_t expected_parts() const;
  [[nodiscard]] std::size_t expected_sums() const;
  /// Return whether this member sends its shard, or a part of the peer's shard, to `peer`.
  [[nodiscard]] bool sums_go_to(std::size_t peer) const { return peer != self() && (!gathers() || peer == 0); }
  [[nodiscard]] bool parts_go_to(std::size_t peer) const { return peer != self() && (!gathers() || self() == 0); }
  [[nodiscard]] bool gathers() const { return options_.kind == ReductionKind::moments; }
  [[nodiscard]] bool encodes_sums() const { return slots_ && slots_->encodes_sums(); }
  /// Return the size of the part that a member sends to the owner of a shard, and the size of its sum.
  [[nodiscard]] std::size_t part_bytes(std::size_t index) const {
    if (slots_) return slots_->codec(index, false).bytes();
    return (gathers() ? 1 : shard(index).count) * sizeof(float);
  }
  [[nodiscard]] std::size_t sum_bytes(std::size_t index) const {
    return encodes_sums() ? slots_->codec(index, true).bytes() : shard(index).count * sizeof(float);
  }
  [[nodiscard]] ShardRange own() const { return shard(self()); }
  [[nodiscard]] std::span<float> own_of(std::span<float> all) const { return all.subspan(own().first, own().count); }
  [[nodiscard]] ShardRange shard(std::size_t index) const { return shard_range(values_.size(), members(), index); }
  [[nodiscard]] std::size_t self() const { return options_.self; }
  [[nodiscard]] std::size_t members() const { return options_.members.size(); }
  [[nodiscard]] std::size_t largest_part() const;

  HostExchangeOptions options_;
  std::span<float> values_;  // the gradients, in host memory
  Network* network_;
  ExchangeOutbox outbox_;
  ReductionAddress address_;
  AlignedMemory parts_;  // a part per sending member, written by RMA
  std::optional<WireSlots> slots_;
  WireError error_;
  std::unique_ptr<Region> parts_region_;
  std::unique_ptr<Region> slots_region_;
  std::unique_ptr<Region> gradient_region_;
  MemberLinks links_;
  std::map<std::uint64_t, ReductionRound> rounds_;
  std::map<RoundAndSender, std::span<const std::byte>> handed_parts_;
  std::map<RoundAndSender, std::span<const std::byte>> handed_sums_;
  std::uint64_t round_ = 0;  // last round begun, from 1
  Operation operation_ = Operation::sum;
  State state_ = State::idle;
  Work work_ = Work::none;  // running job
};

}  // namespace maestro
