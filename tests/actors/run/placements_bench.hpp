// SPDX-License-Identifier: Apache-2.0
// Supervisors of processes whose placements move.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/job/placements.hpp"
#include "actors/run/supervisor/supervisor.hpp"
#include "tests/actors/actor_bench.hpp"
#include "tests/schedule/small_graph.hpp"

namespace maestro::testing {

inline const SectionId text(0), teacher(1), student(2);
inline constexpr Epoch begun(40);

inline Placement placement(SectionId section, std::uint32_t index, std::uint32_t process) {
  return {section, ReplicaIndex(index), ProcessId(process)};
}

/// Supervisors of four processes: process 0 has the text, 1 and 2 a teacher each, 3 the student. The test acts for all
/// other actors.
class MovesOfPlacements : public ::testing::Test {
 protected:
  /// Records the calls of a process's supervisor.
  class Host final : public PlacementHost {
   public:
    Host(MovesOfPlacements& test, std::uint32_t rank) : test_(test), rank_(rank) {}
    std::vector<OwnActor> take(const MovePlacements& order) override { return test_.take(rank_, order); }
    void remove(const ProcessInfo& lost, bool here) override {
      EXPECT_TRUE(here);
      test_.removed_.push_back(lost.process.value());
    }
    void left(ProcessId process) override { test_.left_.push_back(process.value()); }
    void start_again(ProcessId process) override { test_.started_.push_back(process.value()); }
    void start_new(ProcessId process, const std::string&) override { start_again(process); }
    void placed(ProcessId process) override { test_.placed_.push_back(process.value()); }
    void begun(const std::string& line) override { test_.lines_.push_back(line); }
    void warn(const std::string& line) override { begun(line); }
    void note(const std::string& line) override { begun(line); }

   private:
    MovesOfPlacements& test_;
    std::uint32_t rank_;
  };

  void start() {
    for (std::uint32_t rank = 0; rank < processes_; ++rank) supervisors_.push_back(spawn(rank));
    for (const caf::actor& supervisor : supervisors_) bench_.send(supervisor, JoinRoot{supervisors_[0]});
    bench_.deliver_all();
    for (std::uint32_t rank = 0; rank < processes_; ++rank) bench_.send(supervisors_[rank], local(rank));
    bench_.deliver_all();
  }
  caf::actor spawn(std::uint32_t rank) {
    SupervisorOptions options;
    options.graph = &graph_;
    options.process = ProcessId(rank);
    options.hosts.assign(processes_ + joining_, 0);
    options.joining = joining_;
    options.outcome = outcomes_.emplace_back(std::make_shared<OutcomePromise>());  // a replacement's comes last
    options.current_step = &current_step_;
    options.summary = [rank] { return ProcessSummary{ProcessId(rank), 0, {}, 0, 0}; };
    options.recovers = true;
    options.rescues = rescues_ && rank == 0;
    options.connect = [this](caf::event_based_actor*, const std::string&, std::uint16_t port, const auto& done,
                             const auto&) { done(supervisors_.at(port)); };
    options.placements.host = &hosts_.emplace_back(*this, rank);
    options.placements.most = most_;
    options.placements.epoch = begun;
    options.placements.starts = starts_;
    options.placements.may_join = joining_ > 0;
    options.placements.by_hand = rank >= 4 && elastic_.empty();
    if (rank == 0) options.placements.elastic = elastic_;
    ends_.push_back(options.outcome->future().share());
    return bench_.spawn<Supervisor>(options);
  }
  /// Spawns a replica that follows its orders and records them.
  caf::actor replica(SectionId section, std::uint32_t index, std::uint32_t process) {
    const ReplicaAddress address{section, ReplicaIndex(index), ProcessId(process), nullptr, {}, {}};
    const auto self = std::make_shared<caf::actor>();
    const std::string name = graph_.node(section).name + std::to_string(index) + "@" + std::to_string(process);
    const auto note = [this, name](const std::string& what) { noted_.push_back(name + " " + what); };
    const auto own = [address, self] {
      ReplicaAddress known = address;
      known.actor = *self;
      return known;
    };
    *self = bench_.stand_in([own](AddressRequest) { return own(); },
                            [own, note](const RenewInputs& renewal) {
                              note("renews for " + std::to_string(renewal.epoch.value()));
                              return InputsRenewed{own(), {RingArrivals{{}, ReplicaIndex(0), {}, 11, {}}}};
                            },
                            [this, address](StatusRequest) {
                              WaitingFor answer = states_[address.section];
                              answer.section = address.section;
                              answer.replica = address.replica;
                              return answer;
                            },
                            [note](Retire) { note("retires"); }, [note](const PlacementsMoved&) { note("goes on"); },
                            [note](const Directory&) { note("begins"); });
    actors_.push_back(*self);
    return *self;
  }
  std::vector<OwnActor> take(std::uint32_t rank, const MovePlacements& order) {
    std::vector<Placement>& own = placements_of_[rank];
    follow_moves(own, order.moved, ProcessId(rank));
    std::vector<OwnActor> taken;
    for (const Placement& placement : own) {
      if (placement.section != student)
        taken.push_back({replica(placement.section, placement.replica.value(), rank), "section"});
    }
    if (silent_) {
      taken.push_back({bench_.stand_in([](AddressRequest) -> caf::result<ReplicaAddress> {
                         return caf::delegated<ReplicaAddress>();
                       }),
                       "section"});
    }
    return taken;
  }
  virtual LocalActors local(std::uint32_t rank) {
    LocalActors local;
    local.info.process = ProcessId(rank);
    local.info.identity.pid = 100 + rank;
    local.info.actors_port = static_cast<std::uint16_t>(rank);
    local.info.supervisor = supervisors_[rank];
    const SectionId section = rank == 0 ? text : rank == 3 ? student : teacher;
    const std::uint32_t index = rank == 2 ? 1 : 0;
    const bool late = rank >= 4;
    replicas_.push_back(replica(section, index, rank));
    placements_of_[rank].clear();
    if (!idle(rank) && !late) {
      placements_of_[rank].push_back(placement(section, index, rank));
      local.info.replicas.push_back({section, ReplicaIndex(index), ProcessId(rank), replicas_.back(), {}, {}});
    }
    const auto rescue = [this](const Rescue& loss) -> caf::result<Rescued> {
      noted_.push_back("rescue from process " + std::to_string(loss.lost.value()));
      if (silent_) return caf::delegated<Rescued>();
      return Rescued{};
    };
    local.coordinator = bench_.stand_in([](const Directory&) {}, [](Begin) {}, rescue,
                                        [this](const PlacementsLost& loss) { noted_.push_back("lost: " + loss.cause); },
                                        [this](const BeginAgain& moved) { moved_ = moved; });
    return local;
  }
  /// Returns whether a process is without sections.
  [[nodiscard]] virtual bool idle(std::uint32_t) const { return false; }
  void kill(std::uint32_t rank) {
    caf::anon_send_exit(supervisors_[rank], caf::exit_reason::kill);
    bench_.deliver_all();
  }
  /// Starts a process that joins, or that was lost, and introduces it to rank 0.
  void come(std::uint32_t rank) {
    supervisors_.resize(std::max<std::size_t>(supervisors_.size(), rank + 1));
    supervisors_[rank] = spawn(rank);
    bench_.send(supervisors_[rank], JoinRoot{supervisors_[0]});
    bench_.deliver_all();
    bench_.send(supervisors_[rank], local(rank));
    bench_.deliver_all();
  }
  [[nodiscard]] std::vector<Placement> placements() const {
    std::vector<Placement> placements = placements_of(moved_->directory);
    std::ranges::sort(placements);
    return placements;
  }
  /// Settles the loss and checks that the run can recover from the last checkpoint.
  void settle() {
    bench_.send(supervisors_[0], LossSettled{});
    bench_.deliver_all();
    ASSERT_TRUE(ended(0));
    EXPECT_TRUE(ends_[0].get().recoverable);
  }
  [[nodiscard]] bool ended(std::uint32_t rank) {
    return ends_[rank].wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  [[nodiscard]] int times(const std::string& note) const { return static_cast<int>(std::ranges::count(noted_, note)); }

  SectionGraph graph_ = distillation_graph(2);
  std::size_t most_ = 10;
  std::uint32_t processes_ = 4;  // processes at the start
  std::size_t joining_ = 0;
  std::vector<std::string> elastic_;
  std::map<SectionId, WaitingFor> states_;  // for all replicas of a section
  bool starts_ = false;                     // whether lost processes are started again
  std::vector<std::uint32_t> started_, placed_;
  bool silent_ = false;  // whether a new replica never gives its address and Rescue is not answered
  bool rescues_ = false;
  std::atomic<std::uint64_t> current_step_ = 4;
  std::vector<std::shared_ptr<OutcomePromise>> outcomes_;
  std::vector<std::shared_future<RunOutcome>> ends_;
  std::vector<std::string> lines_, noted_;
  std::vector<std::uint32_t> removed_, left_;
  std::map<std::uint32_t, std::vector<Placement>> placements_of_;  // as each process has recorded them
  std::optional<BeginAgain> moved_;
  std::deque<Host> hosts_;  // a deque: supervisors keep the hosts' addresses
  std::vector<caf::actor> actors_, replicas_;
  ActorBench bench_;
  std::vector<caf::actor> supervisors_;
};

}  // namespace maestro::testing
