// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/supervisor.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "tests/actors/actor_bench.hpp"

namespace maestro {
namespace {

/// Rank 0's supervisor in a job with a single process; the test acts for its other actors.
class SupervisorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SupervisorOptions options;
    options.graph = &graph_;
    options.build = "maestro 1 job test";
    options.outcome = outcome_;
    options.current_step = &current_step_;
    options.summary = [] {
      ProcessSummary summary;
      summary.bytes = 77;
      return summary;
    };
    options.connect_transport = [this](const ProcessInfo& process) { connect(process); };
    supervisor_ = bench_.spawn<Supervisor>(options);
    LocalActors local;
    local.coordinator = bench_.stand_in([this](const Directory&) { ++directories_; }, [this](Begin) { ++begun_; });
    local.info.build = options.build;
    local.info.supervisor = supervisor_;
    bench_.send(supervisor_, JoinRoot{supervisor_});
    bench_.send(supervisor_, local);
    bench_.deliver_all();
  }
  virtual void connect(const ProcessInfo& peer) { connected_.push_back(peer.process.value()); }
  [[nodiscard]] bool decided() const { return ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  template <class Message>
  void tell_it(Message message) {
    bench_.send(supervisor_, std::move(message));
    bench_.deliver_all();
  }

  SectionGraph graph_;
  std::shared_ptr<OutcomePromise> outcome_ = std::make_shared<OutcomePromise>();
  std::future<RunOutcome> ended_ = outcome_->future();
  std::atomic<std::uint64_t> current_step_ = 0;
  int directories_ = 0;
  int begun_ = 0;
  std::vector<std::uint32_t> connected_;
  testing::ActorBench bench_;
  caf::actor supervisor_;
};

TEST_F(SupervisorTest, the_job_begins_when_everyone_is_wired) {
  EXPECT_EQ(directories_, 1);
  EXPECT_EQ(connected_, std::vector<std::uint32_t>{0});
  EXPECT_EQ(begun_, 1);
  EXPECT_FALSE(decided());
}

TEST_F(SupervisorTest, a_failed_transfer_fails_the_run_when_no_loss_has_explained_it) {  // SV-7
  tell_it(TransferBroken{"section 'a' replica 0: cannot write"});
  EXPECT_FALSE(decided());
  bench_.advance(std::chrono::milliseconds(2999));
  EXPECT_FALSE(decided());
  bench_.advance(std::chrono::milliseconds(1));
  ASSERT_TRUE(decided());
  EXPECT_EQ(ended_.get().error, "section 'a' replica 0: cannot write");
}

class UnreachableMemoryTest : public SupervisorTest {
  void connect(const ProcessInfo&) override { throw JobError("no address"); }
};

TEST_F(UnreachableMemoryTest, ends_the_run_before_it_begins) {
  ASSERT_TRUE(decided());
  EXPECT_EQ(begun_, 0);
  EXPECT_EQ(ended_.get().error, "transport: no address");
}

TEST_F(SupervisorTest, the_first_failure_decides_and_later_ones_change_nothing) {  // SV-1
  tell_it(Failure{"the first"});
  tell_it(Failure{"the second"});
  tell_it(Finish{});
  ASSERT_TRUE(decided());
  const RunOutcome outcome = ended_.get();
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.error, "the first");
}

TEST_F(SupervisorTest, an_orderly_end_brings_the_summary_and_a_failure_after_it_changes_nothing) {  // SV-1
  tell_it(Finish{});
  tell_it(Failure{"too late"});
  ASSERT_TRUE(decided());
  const RunOutcome outcome = ended_.get();
  EXPECT_TRUE(outcome.ok);
  ASSERT_EQ(outcome.processes.size(), 1u);
  EXPECT_EQ(outcome.processes[0].bytes, 77u);
  EXPECT_FALSE(outcome.next_stage);
}

TEST_F(SupervisorTest, the_end_of_a_stage_is_an_orderly_end_that_another_start_follows) {  // PR-5
  tell_it(Finish{true});
  ASSERT_TRUE(decided());
  const RunOutcome outcome = ended_.get();
  EXPECT_TRUE(outcome.ok);
  EXPECT_TRUE(outcome.next_stage);
}

TEST_F(SupervisorTest, a_process_of_another_build_ends_the_job_naming_both) {
  ProcessInfo info;
  info.process = ProcessId(1);
  info.build = "maestro 2 job test";
  tell_it(info);
  ASSERT_TRUE(decided());
  const std::string error = ended_.get().error;
  EXPECT_NE(error.find("process 1"), std::string::npos) << error;
  EXPECT_NE(error.find("maestro 2 job test instead of maestro 1 job test"), std::string::npos) << error;
}

/// Supervisors of three processes on two hosts, in a single actor system; the test acts for their other actors.
class SupervisorsTest : public ::testing::Test {
 protected:
  static constexpr std::size_t processes = 3;

  void start() {
    for (std::uint32_t rank = 0; rank < processes; ++rank) supervisors_.push_back(spawn(rank));
    for (std::uint32_t rank = 0; rank < processes; ++rank) bench_.send(supervisors_[rank], JoinRoot{supervisors_[0]});
    bench_.deliver_all();
    for (std::uint32_t rank = 0; rank < processes; ++rank) bench_.send(supervisors_[rank], local(rank));
    bench_.deliver_all();
  }
  caf::actor spawn(std::uint32_t rank) {
    SupervisorOptions options;
    options.graph = &graph_;
    options.process = ProcessId(rank);
    options.hosts = {0, 1, 1};
    options.build = "maestro 1 job test";
    options.outcome = outcomes_[rank];
    options.current_step = &current_step_;
    options.recovers = recovers_;
    options.survives = rank == 1;
    if (starts_again_) options.may_recover = [] { return true; };
    options.connected = [this](caf::event_based_actor*) { ++connected_; };
    options.stop_run = [this] { ++interrupted_; };
    options.connect = [this, rank](caf::event_based_actor*, const std::string& host, std::uint16_t port,
                                   const auto& done, const auto& failed) {
      connections_.emplace_back(rank, host + ":" + std::to_string(port));
      if (reachable_) return done(supervisors_.at(port));
      failed("no route to host");
    };
    return bench_.spawn<Supervisor>(options);
  }
  LocalActors local(std::uint32_t rank) {
    LocalActors local;
    local.coordinator = bench_.stand_in([](const Directory&) {}, [this](Begin) { ++begun_; });
    local.info.process = ProcessId(rank);
    local.info.identity.pid = 100 + rank;
    local.info.host = rank == 0 ? "a" : "b";
    local.info.build = "maestro 1 job test";
    local.info.actors_host = local.info.host;
    local.info.actors_port = static_cast<std::uint16_t>(rank);
    local.info.supervisor = supervisors_[rank];
    return local;
  }
  /// Kills a process during the run; `reporter` is the first survivor that notices.
  void lose(std::uint32_t rank, std::uint32_t reporter) {
    start();
    caf::anon_send_exit(supervisors_[rank], caf::exit_reason::kill);
    bench_.deliver_all();
    bench_.send(supervisors_[reporter], LossSettled{});
    bench_.deliver_all();
  }
  /// Returns the error that a process prints; nothing while it runs.
  std::optional<std::string> error_of(std::uint32_t rank) {
    if (ends_[rank].wait_for(std::chrono::seconds(0)) != std::future_status::ready) return std::nullopt;
    return ends_[rank].get().error;
  }

  SectionGraph graph_;
  std::vector<std::shared_ptr<OutcomePromise>> outcomes_ = {
      std::make_shared<OutcomePromise>(), std::make_shared<OutcomePromise>(), std::make_shared<OutcomePromise>()};
  std::vector<std::shared_future<RunOutcome>> ends_ = {outcomes_[0]->future().share(), outcomes_[1]->future().share(),
                                                       outcomes_[2]->future().share()};
  std::atomic<std::uint64_t> current_step_ = 4;
  bool reachable_ = true;
  bool recovers_ = false;
  bool starts_again_ = false;
  int connected_ = 0;
  int begun_ = 0;
  int interrupted_ = 0;
  std::vector<std::pair<std::uint32_t, std::string>> connections_;  // connecting process, and address
  testing::ActorBench bench_;
  std::vector<caf::actor> supervisors_;
};

TEST_F(SupervisorsTest, each_connects_to_those_before_it_but_rank_0_and_then_the_job_begins) {  // SV-5
  start();
  EXPECT_EQ(connections_, (std::vector<std::pair<std::uint32_t, std::string>>{{2, "b:1"}}));
  EXPECT_EQ(connected_, 3);
  EXPECT_EQ(begun_, 1);
}

TEST_F(SupervisorsTest, a_peer_that_cannot_be_reached_is_told_by_the_first_process_of_every_host) {  // SV-3, SV-5
  reachable_ = false;
  start();
  EXPECT_EQ(begun_, 0);
  const std::string told =
      "process 2 cannot connect to process 1 at b:1: no route to host; check the network between the hosts; over long "
      "distances raise train.peer_timeout_s";
  EXPECT_EQ(error_of(0), told);
  EXPECT_EQ(error_of(1), told);
  EXPECT_EQ(error_of(2), "");  // rank 1 is on its host
}

TEST_F(SupervisorsTest, a_failure_is_told_by_the_first_process_of_every_host) {  // SV-3
  start();
  bench_.send(supervisors_[2], Failure{"section 's' replica 0, step 4: diverged"});
  bench_.deliver_all();
  EXPECT_EQ(error_of(0), "section 's' replica 0, step 4: diverged");
  EXPECT_EQ(error_of(1), "section 's' replica 0, step 4: diverged");
  EXPECT_EQ(error_of(2), "");
}

TEST_F(SupervisorsTest, rank_0_that_is_lost_is_told_by_the_first_process_of_another_host) {  // SV-2, SV-3
  lose(0, 1);
  EXPECT_EQ(error_of(1),
            "lost process 0 (pid 100, host a, coordinator) in step 4: it died, or was silent for too long");
  EXPECT_EQ(error_of(2), "");
}

TEST_F(SupervisorsTest, a_lost_process_that_rank_0_starts_again_is_told_by_rank_0_alone) {  // SV-3, PR-3
  recovers_ = true;
  lose(2, 0);
  EXPECT_EQ(error_of(0), "lost process 2 (pid 102, host b) in step 4: it was silent for too long");
  EXPECT_TRUE(ends_[0].get().recoverable);
  EXPECT_EQ(error_of(1), "");
}

TEST_F(SupervisorsTest, a_survivor_that_can_stays_until_the_supervisor_of_rank_0_ends) {  // SV-13
  recovers_ = starts_again_ = true;
  start();
  bench_.send(supervisors_[2], Failure{"section 's' replica 0, step 4: its server ended", false, true});
  bench_.deliver_all();
  EXPECT_EQ(ends_[0].get().survivors, std::set<ProcessId>{ProcessId(1)});
  EXPECT_EQ(error_of(1), std::nullopt);
  EXPECT_FALSE(ends_[2].get().again) << "it cannot take part in another start";
  caf::anon_send_exit(supervisors_[2], caf::exit_reason::user_shutdown);
  bench_.deliver_all();
  EXPECT_EQ(error_of(1), std::nullopt) << "another process ends";
  caf::anon_send_exit(supervisors_[0], caf::exit_reason::user_shutdown);
  bench_.deliver_all();
  ASSERT_EQ(error_of(1), "");
  EXPECT_TRUE(ends_[1].get().again);
}

TEST_F(SupervisorsTest, a_process_that_has_failed_itself_does_not_stay) {  // SV-13
  recovers_ = starts_again_ = true;
  start();
  bench_.send(supervisors_[1], Failure{"section 's' replica 0, step 4: its server ended", false, true});
  bench_.deliver_all();
  const RunOutcome of_root = ends_[0].get();
  EXPECT_EQ(of_root.error, "section 's' replica 0, step 4: its server ended");
  EXPECT_EQ(of_root.survivors, std::set<ProcessId>{});
  EXPECT_FALSE(ends_[1].get().again);
}

TEST_F(SupervisorsTest, a_rollback_has_survivors_stay_whether_or_not_losses_do) {  // SV-13, PR-4
  start();
  bench_.send(supervisors_[0], Failure{.message = "a spike lasts", .goes_back = true});
  bench_.deliver_all();
  EXPECT_FALSE(ends_[0].get().recoverable);
  EXPECT_EQ(ends_[0].get().survivors, std::set<ProcessId>{ProcessId(1)});
}

TEST_F(SupervisorsTest, a_failure_that_is_no_loss_is_not_recoverable) {
  recovers_ = true;
  start();
  bench_.send(supervisors_[2], Failure{"section 's' replica 0, step 4: diverged"});
  bench_.deliver_all();
  EXPECT_EQ(error_of(0), "section 's' replica 0, step 4: diverged");
  EXPECT_FALSE(ends_[0].get().recoverable);
  EXPECT_EQ(error_of(1), "");
}

TEST_F(SupervisorsTest, the_loss_of_a_server_is_recoverable_wherever_its_section_runs) {
  recovers_ = true;
  start();
  bench_.send(supervisors_[2], Failure{"section 's' replica 0, step 4: its server ended", false, true});
  bench_.deliver_all();
  EXPECT_EQ(error_of(0), "section 's' replica 0, step 4: its server ended");
  EXPECT_TRUE(ends_[0].get().recoverable);
  EXPECT_EQ(error_of(1), "");
}

TEST_F(SupervisorsTest, rank_0_that_is_lost_is_told_where_it_would_start_others_again_too) {  // SV-3
  recovers_ = true;
  lose(0, 1);
  EXPECT_EQ(error_of(1),
            "lost process 0 (pid 100, host a, coordinator) in step 4: it died, or was silent for too long");
}

TEST_F(SupervisorsTest,
       two_that_lose_each_other_while_rank_0_has_both_end_the_run_when_it_had_time_to_notice) {  // SV-5
  start();
  bench_.send(supervisors_[1], PeerLost{supervisors_[2].address(), "process 2 (pid 102, host b)"});
  bench_.deliver_all();
  const std::string told =
      "process 1 lost its connection to process 2 (pid 102, host b) in step 4, which process 0 still reaches; check "
      "the network "
      "between their hosts";
  EXPECT_EQ(error_of(0), told);
  EXPECT_EQ(error_of(1), told);
}

TEST_F(SupervisorsTest, a_process_whose_heartbeats_stay_away_is_lost) {  // SV-2
  SupervisorOptions options;
  options.graph = &graph_;
  options.hosts = {0, 0};
  options.outcome = outcomes_[0];
  options.current_step = &current_step_;
  const caf::actor root = bench_.spawn<Supervisor>(options);
  const caf::actor mute = bench_.stand_in([](const Heartbeat&) {}, [](const Failure&) {});
  bench_.send(root, JoinRoot{root});
  bench_.send(root, ProcessJoined{ProcessId(1), {1, 101, 1}, "", mute});
  bench_.deliver_all();
  const auto beat = PeerWatch::interval_of(options.peer_timeout);
  for (int beats = 0; beats < 8; ++beats) bench_.advance(beat);
  EXPECT_EQ(error_of(0), std::nullopt);
  for (int beats = 0; beats < 3; ++beats) bench_.advance(beat);
  EXPECT_EQ(error_of(0), "lost process 1 (pid 101) in step 4: it was silent for too long");
}

TEST_F(SupervisorsTest, a_process_that_joins_twice_counts_once) {  // RM-1
  const caf::actor root = spawn(0);
  const caf::actor other = bench_.stand_in([](const Heartbeat&) {}, [](const Failure&) {});
  bench_.send(root, JoinRoot{root});
  for (int repeat = 0; repeat < 2; ++repeat) {
    bench_.send(root, ProcessJoined{ProcessId(1), {1, 101, 1}, "", other});
  }
  bench_.deliver_all();
  bench_.send(root, StartTimeout{});
  bench_.deliver_all();
  EXPECT_EQ(error_of(0), "only 2 of 3 processes joined within 60 s");
}

TEST_F(SupervisorsTest, that_hear_each_other_go_on) {  // SV-2
  start();
  for (int beat = 0; beat < 100; ++beat) bench_.advance(PeerWatch::interval_of(std::chrono::milliseconds(2000)));
  for (std::uint32_t rank = 0; rank < processes; ++rank) EXPECT_EQ(error_of(rank), std::nullopt);
}

TEST_F(SupervisorsTest, an_interrupt_of_any_process_reaches_rank_0) {
  start();
  bench_.send(supervisors_[2], Interrupt{});
  bench_.deliver_all();
  EXPECT_EQ(interrupted_, 1);
}

TEST_F(SupervisorTest, an_actor_of_the_process_that_ends_fails_the_run) {  // SV-6
  LocalActors local;
  const caf::actor planner = bench_.stand_in([](Begin) {});
  local.info.build = "maestro 1 job test";
  local.info.supervisor = supervisor_;
  local.own.push_back({planner, "planner"});
  tell_it(local);
  caf::anon_send_exit(planner, caf::exit_reason::user_shutdown);
  bench_.deliver_all();
  EXPECT_FALSE(decided()) << "the actor's own Failure may be on its way";
  bench_.advance(std::chrono::milliseconds(100));
  ASSERT_TRUE(decided());
  const std::string error = ended_.get().error;
  EXPECT_NE(error.find("planner ended during the run"), std::string::npos) << error;
}

TEST(OutcomePromise, is_set_once) {  // SV-1
  OutcomePromise promise;
  RunOutcome first;
  first.error = "first";
  promise.set(first);
  promise.set(RunOutcome());
  EXPECT_EQ(promise.future().get().error, "first");
}

TEST(ProcessLabel, names_the_process_and_what_it_hosts) {
  SectionGraph graph;
  GraphNode node;
  node.name = "student";
  graph.add(node);
  ProcessInfo info;
  info.process = ProcessId(2);
  info.identity.pid = 4711;
  ReplicaAddress replica;
  replica.replica = ReplicaIndex(1);
  info.replicas.push_back(replica);
  EXPECT_EQ(process_label(info, graph), "process 2 (pid 4711, section 'student' replica 1)");
}

}  // namespace
}  // namespace maestro
