// SPDX-License-Identifier: Apache-2.0
// An exchange among devices that form a group (NCCL): each operation is a collective in the order of the device's work.
// Plain class; the actor passes messages in.
//
// DG-1 (one order): members run the same operations in the same order: boundaries reach all lanes in one order (CR-1),
//        a lane passes them in turn, and the actions of a boundary follow SB-2.
// DG-2 (announcements): members announce each operation, and no member queues it on a device before all have announced
//        it. So a device does not wait for a late member: the wait would take time from sections that share the device
//        and could delay the work that the late member waits for. A lost member delays only messages.
// DG-3 (forming groups): groups are formed on the devices' threads before any other work, on every rank first the
//        groups of ties, then the groups of replicas: ranks never wait for each other in different groups.
// DG-4 (failed groups): results are used only if no collective before them has failed (Communicator::failure()).
//        Every member that detects a failure reports it, because any member may be first. The supervisor ignores
//        reports during shutdown.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/job/reduction_paths.hpp"
#include "actors/replica/reduction/exchange.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/ops/parameters.hpp"

namespace maestro {

struct NcclExchangeOptions {
  const SectionGraph* graph = nullptr;   ///< for names in errors
  std::vector<ReductionMember> members;  ///< two or more, by rank in the group
  std::size_t self = 0;                  ///< index in members
  ReductionKind kind = ReductionKind::replicas;
  LayoutRank layout_rank;
  /// Gradients in device memory. Their shards equal the shards of Parameters::shard_optimizer_state(): both are
  /// shard_range() over all gradients.
  std::span<float> gradients;
  std::function<void(ParameterBuffer)> stage_shard;  ///< writes this member's moments to their place in `gradients`
  Device* device = nullptr;
  const DeviceBackend* backend = nullptr;
  std::shared_ptr<AbortReason> end;  ///< GroupRank::abort
};

/// Device and backend outlive the exchange and its jobs.
class NcclExchange final : public Exchange {
 public:
  /// Member 0 makes the group's id. Throws JobError.
  explicit NcclExchange(NcclExchangeOptions options);

  /// Returns an address with the group's id, which only member 0 has.
  [[nodiscard]] ReductionAddress address() const override;
  /// Makes the device's thread join the group. If the group cannot be formed, calls ExchangeOutbox::broken with a line
  /// that names the peers.
  void connect(const Directory& directory, const ExchangeOutbox& outbox) override;
  void leave() override {
    group_.reset();
    peers_.clear();
  }

  void begin(Operation operation) override;
  [[nodiscard]] std::optional<LabelledJob> next_job() override;
  void job_done() override;
  [[nodiscard]] bool complete() const override { return state_ == State::idle; }
  void ready(const ReductionReady& ready) override { ++announced_.at(ready.member); }

 private:
  struct Group;
  enum class State : std::uint8_t { idle, announced, queued };
  [[nodiscard]] std::string name_of(const ReplicaAddress& member) const;
  void join(const std::vector<std::uint8_t>& id, std::function<void(const std::string&)> broken) const;
  /// Returns whether the operation that was announced last may be queued (DG-2).
  [[nodiscard]] bool all_announced() const;
  /// Returns the job that queues the operation's collective.
  [[nodiscard]] RankJob job() const;

  NcclExchangeOptions options_;
  std::vector<std::uint8_t> id_;
  std::vector<caf::actor> peers_;         // by member
  std::vector<std::uint64_t> announced_;  // number of operations, by member
  std::function<void(const caf::actor&, ReductionReady)> ready_;
  std::shared_ptr<Group> group_;  // shared with work on the device's thread
  Operation operation_ = Operation::sum;
  State state_ = State::idle;
};

}  // namespace maestro
