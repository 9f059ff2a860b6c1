// SPDX-License-Identifier: Apache-2.0
// What one rank of a replica adds up and exchanges with others at marks: gradients of a tied parameter with the other
// stage that holds it, gradients with the other replicas; and of replicas that share their moments new values and, for
// a checkpoint, moments. Plain class; the replica's actor passes messages in and runs the work.
//
// Each reduction goes one of two ways, which all its members choose alike (WR-1): in a group of the members' devices
// (NcclExchange), when each has a CUDA device of its own, or in host memory in a fixed order
// (HostExchange), to and from which gradients of a device are copied (GradientStaging).
//
// RX-1: at any time at most one reduction runs, and at most one piece of its work is handed out.
// RX-2: between the sum of gradients and begin_distribution() a rank that shares its moments has the sum of its own
//        shard only.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/replica/reduction/gradient_staging.hpp"
#include "actors/replica/reduction/host_exchange.hpp"
#include "actors/replica/reduction/nccl_exchange.hpp"
#include "actors/replica/reduction/rank_work.hpp"
#include "runtime/ops/parameters.hpp"

namespace maestro {

struct ReplicaSpec;
class SectionRunner;

/// How a rank's reductions reach others, and their troubles the actor.
struct ReductionOutbox {
  HostExchange::Deliver deliver;
  NcclExchange::Ready ready;
  NcclExchange::Broken broken;  ///< called from any thread
};

/// Not thread-safe; belongs to the replica's actor.
class RankExchanges {
 public:
  using Work = std::pair<std::string_view, RankJob>;
  using TellRead = std::function<void(const caf::actor&, ShardRead)>;
  /// `spec` and what it refers to outlive it. `client`: number of the rank's writes. Throws JobError.
  RankExchanges(const ReplicaSpec& spec, std::uint32_t rank, std::uint32_t client);

  [[nodiscard]] std::vector<ReductionAddress> addresses() const;
  [[nodiscard]] std::vector<std::uint32_t> ring_numbers() const;
  void connect(const Directory& directory, const ReductionOutbox& outbox);
  /// Lets go of groups, at the actor's end.
  void leave();

  /// True when the event was one of these reductions'.
  bool landed(std::uint32_t immediate);
  bool write_finished(std::uint64_t cookie);
  void handed_over(const ShardHandOver& shard) { by_host(shard.kind).handed_over(shard); }
  void shard_read(const ShardRead& read) { by_host(read.kind).shard_read(read.round); }
  void ready(const ReductionReady& message);

  /// Adds the gradient of a tied parameter up over the two stages that hold it, then all gradients over the replicas.
  /// Where replicas share their moments, this one has the sum of its shard in the end.
  void begin();
  /// Replicas that share their moments have stepped: they exchange what they offered (Parameters::stage_shard).
  void begin_distribution();
  /// Brings what replicas have of `which` moments into the gradients of replica 0. Those of all others mean nothing
  /// afterwards.
  void begin_gather(ParameterBuffer which);
  /// Work for the device that the reduction is ready for, if any; then worked().
  [[nodiscard]] std::optional<Work> work();
  void worked(const TellRead& tell_read);
  /// What was begun is complete. May begin the second reduction.
  [[nodiscard]] bool done();

 private:
  /// In a group: `announced` until all members are, then working. By the host gradients of a device are taken out
  /// before they move and put back afterwards; a held sum is put back for the optimizer's step, and what has taken its
  /// place taken out again. The others are here all along.
  enum class State : std::uint8_t { none, announced, leaving, moving, returning, held, working };
  enum class Doing : std::uint8_t { exchange, copy_to_host, sum, copy, copy_to_device };
  [[nodiscard]] HostExchange& by_host(ReductionKind kind) { return by_host_[static_cast<std::size_t>(kind)]; }
  /// The one that does reductions of this kind; null where they go by the host, or nowhere.
  [[nodiscard]] NcclExchange* group_of(ReductionKind kind);
  [[nodiscard]] bool needed(ReductionKind kind) { return group_of(kind) != nullptr || by_host(kind).needed(); }
  void begin(ReductionKind kind);
  [[nodiscard]] Work handed_out(Doing doing, std::string_view label, RankJob job);
  /// Of the reduction that runs.
  [[nodiscard]] RankJob exchange_job();
  [[nodiscard]] RankJob sum_job();
  [[nodiscard]] RankJob copy_job(Doing doing);
  [[nodiscard]] Parameters& parameters() const;
  [[nodiscard]] std::span<float> tied_gradient() const;
  /// The gradients that are taken out or put back now.
  [[nodiscard]] std::span<float> moved() const;
  void exchanged();
  void taken_out();
  void copy_to_device();
  void finish();

  const ReplicaSpec* spec_;
  std::shared_ptr<SectionRunner> runner_;  // shared with work on the device's thread
  NcclExchange replicas_;                  // for moments, too: these have the same members
  NcclExchange tie_;
  GradientStaging mirror_;                             // before the reductions that work on it
  std::array<HostExchange, reduction_kinds> by_host_;  // by kind
  bool gathers_ = false;                               // takes part in moments
  State state_ = State::none;
  Doing doing_ = Doing::sum;                                  // while working
  bool holding_ = false;                                      // what moves is a held sum, or what took its place
  ReductionKind at_ = ReductionKind::replicas;                // the reduction that runs
  ParameterBuffer offered_ = ParameterBuffer::first_moments;  // what is gathered
};

}  // namespace maestro
