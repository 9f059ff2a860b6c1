// SPDX-License-Identifier: Apache-2.0
// A reduction whose members all work on devices that form a group of their own (NCCL): the exchanges of one rank, which
// the devices do among themselves, in the order of their work. Plain class; RankExchanges says what is exchanged when.
//
// DG-1: members make the same exchanges in the same order: marks reach all lanes in one order (CR-1), a mark is passed
//        by one after another, and one has ties, replicas, distribution, or moments in this order.
// DG-2: members announce each exchange, and none is queued on a device before all have announced it. So no device
//        spends its time waiting for a member that is late, which would take from the sections that share it and may
//        hold up what the late one waits for; and a member that is lost is waited for in messages.
// DG-3: groups are formed on the devices' own threads, those of ties before those of replicas on every rank, before
//        any other work: no two ranks wait for each other in different groups.
// DG-4: results are used only when nothing had failed behind them (Communicator::failure()). Whoever finds a failure
//        tells it, for the first to notice may be any member; that the run is ending already, others know.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/plan/reduction_paths.hpp"
#include "actors/replica/reduction/rank_work.hpp"
#include "runtime/device/backend.hpp"

namespace maestro {

struct NcclExchangeOptions {
  const SectionGraph* graph = nullptr;   ///< for names in errors
  std::vector<ReductionMember> members;  ///< by rank in the group; fewer than two: there is none
  std::size_t self = 0;                  ///< index in members
  ReductionKind kind = ReductionKind::replicas;
  std::uint32_t layout_rank = 0;
  Device* device = nullptr;
  const DeviceBackend* backend = nullptr;
  std::shared_ptr<AbortReason> end;  ///< GroupRank::abort
};

/// Not thread-safe; belongs to the replica's actor. Device and backend outlive it and its jobs.
class NcclExchange {
 public:
  using Ready = std::function<void(const caf::actor&, ReductionReady)>;
  using Broken = std::function<void(const std::string& message)>;
  using Exchange = std::function<void(Communicator&)>;
  /// Member 0 makes the group's id. Throws JobError.
  explicit NcclExchange(NcclExchangeOptions options);

  [[nodiscard]] bool needed() const { return options_.members.size() > 1; }
  /// For ReductionAddress::group.
  [[nodiscard]] const std::vector<std::uint8_t>& id() const { return id_; }
  /// Has the device's thread join the group. `ready` tells another member; `broken` is called from any thread, when
  /// the group cannot be formed, with one line that names the peers.
  void connect(const Directory& directory, Ready ready, Broken broken);

  /// This member's work is ready for the next exchange.
  void announce();
  void announced(std::size_t member) { ++announced_.at(member); }
  /// DG-2: what was announced last may be queued.
  [[nodiscard]] bool may_exchange() const;
  /// The work: `exchange` queues it, on the device's thread.
  [[nodiscard]] RankJob job(Exchange exchange) const;
  /// Lets go of the group; nothing may follow but the end.
  void leave() {
    group_.reset();
    peers_.clear();
  }

 private:
  struct Group;
  [[nodiscard]] std::string name_of(const ReplicaAddress& member) const;
  void join(const std::vector<std::uint8_t>& id, Broken broken) const;

  NcclExchangeOptions options_;
  std::vector<std::uint8_t> id_;
  std::vector<caf::actor> peers_;         // by member
  std::vector<std::uint64_t> announced_;  // exchanges, by member
  Ready ready_;
  std::shared_ptr<Group> group_;  // shared with work on the device's thread
};

}  // namespace maestro
