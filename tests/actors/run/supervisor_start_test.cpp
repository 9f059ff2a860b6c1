// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>

#include "actors/run/supervisor/supervisor.hpp"
#include "tests/actors/actor_bench.hpp"

namespace maestro {
namespace {

class SupervisorStartTest : public ::testing::Test {
 protected:
  void SetUp() override { spawn(false); }
  /// Spawns the supervisor; `again`: an earlier start of the run has lost a process.
  void spawn(bool again) {
    SupervisorOptions options;
    options.started_again = again;
    options.may_recover = [] { return true; };
    options.stopping = [this] { return stopping_; };
    options.graph = &graph_;
    options.hosts = {0, 0};
    options.outcome = outcome_;
    options.current_step = &current_step_;
    options.peer_timeout = std::chrono::milliseconds(1000);
    options.stopped_child = [this](std::chrono::milliseconds since) {
      stopped_for_ += since;
      return stopped_for_ < std::chrono::milliseconds(1000) ? std::nullopt
                                                            : std::optional<std::string>("it is stopped");
    };
    supervisor_ = bench_.spawn<Supervisor>(options);
  }
  void join() {
    bench_.send(supervisor_, JoinRoot{supervisor_});
    bench_.deliver_all();
  }
  [[nodiscard]] bool decided() const { return ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  void pass(int milliseconds) {
    for (int at = 0; at < milliseconds; at += 125) bench_.advance(std::chrono::milliseconds(125));
  }

  SectionGraph graph_;
  std::shared_ptr<OutcomePromise> outcome_ = std::make_shared<OutcomePromise>();
  std::future<RunOutcome> ended_ = outcome_->future();
  std::atomic<std::uint64_t> current_step_ = 0;
  std::chrono::milliseconds stopped_for_{};
  bool stopping_ = false;
  testing::ActorBench bench_;
  caf::actor supervisor_;
};

TEST_F(SupervisorStartTest, a_stopped_child_ends_it_after_the_time_of_a_silent_peer) {
  join();
  pass(750);
  EXPECT_FALSE(decided());
  pass(500);
  ASSERT_TRUE(decided());
  EXPECT_EQ(ended_.get().error, "it is stopped");
}

TEST_F(SupervisorStartTest, a_stopped_child_of_another_start_is_one_more_loss) {  // SV-14
  spawn(true);
  join();
  pass(1250);
  ASSERT_TRUE(decided());
  const RunOutcome outcome = ended_.get();
  EXPECT_EQ(outcome.error, "it is stopped");
  EXPECT_TRUE(outcome.recoverable);
}

TEST_F(SupervisorStartTest, a_connection_that_fails_at_another_start_is_one_more_loss) {  // SV-14
  spawn(true);
  join();
  bench_.send(supervisor_, Failure{"process 1 cannot connect to process 2", true});
  bench_.deliver_all();
  ASSERT_TRUE(decided());
  EXPECT_TRUE(ended_.get().recoverable);
}

TEST_F(SupervisorStartTest, a_transport_that_fails_during_a_stop_waits_for_the_checkpoint) {  // SV-15
  stopping_ = true;
  join();
  bench_.send(supervisor_, Failure{"transport: a call has not returned", true});
  bench_.send(supervisor_, Shutdown{});  // all processes have ended in order
  bench_.deliver_all();
  ASSERT_TRUE(decided());
  EXPECT_TRUE(ended_.get().ok);
}

TEST_F(SupervisorStartTest, a_transport_that_fails_during_a_stop_ends_a_run_that_does_not_stop) {  // SV-15
  stopping_ = true;
  stopped_for_ = std::chrono::milliseconds(-60000);
  join();
  bench_.send(supervisor_, Failure{"transport: a call has not returned", true});
  pass(9000);
  EXPECT_FALSE(decided());
  pass(2000);
  ASSERT_TRUE(decided());
  EXPECT_EQ(ended_.get().error, "transport: a call has not returned");
}

TEST_F(SupervisorStartTest, a_stopped_child_is_no_concern_of_it_once_all_have_joined) {
  join();
  pass(250);
  EXPECT_GT(stopped_for_.count(), 0);
  const caf::actor other = bench_.stand_in([](const Heartbeat&) {});
  bench_.send(supervisor_, ProcessJoined{ProcessId(1), own_identity(), "", other});
  bench_.deliver_all();
  const auto before = stopped_for_;
  pass(500);
  EXPECT_EQ(stopped_for_, before);
  EXPECT_FALSE(decided());
}

TEST_F(SupervisorStartTest, processes_that_have_joined_hear_rank_0_while_it_gathers_others) {
  int heard = 0;
  const caf::actor other = bench_.stand_in([&](const Heartbeat&) { ++heard; }, [](const Failure&) {});
  bench_.send(supervisor_, ProcessJoined{ProcessId(1), own_identity(), "", other});
  bench_.deliver_all();
  pass(5000);
  EXPECT_GE(heard, 20);
  EXPECT_FALSE(decided()) << "it judges no one before it has joined itself";
  const int before = heard;
  join();
  pass(1000);
  EXPECT_LE(heard - before, 10) << "a single series of heartbeats";
}

}  // namespace
}  // namespace maestro
