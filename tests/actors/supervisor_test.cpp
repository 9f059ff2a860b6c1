#include "actors/supervisor.hpp"

#include <gtest/gtest.h>

#include "tests/actors/actor_bench.hpp"

namespace maestro {
namespace {

/// Rank 0's supervisor of a job of one process, whose other actors the test plays.
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
    supervisor_ = bench_.spawn<Supervisor>(options);
    LocalActors local;
    local.bridge = bench_.stand_in([this](const Directory&) { ++bridged_; });
    local.coordinator = bench_.stand_in([this](const Directory&) { ++bridged_; }, [this](Begin) { ++begun_; });
    local.hello.build = options.build;
    local.hello.supervisor = supervisor_;
    bench_.send(supervisor_, JoinRoot{supervisor_});
    bench_.send(supervisor_, local);
    bench_.deliver_all();
  }
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
  int bridged_ = 0;
  int begun_ = 0;
  testing::ActorBench bench_;
  caf::actor supervisor_;
};

TEST_F(SupervisorTest, the_job_begins_when_everyone_is_wired) {
  EXPECT_EQ(bridged_, 2);
  EXPECT_EQ(begun_, 0);
  tell_it(BridgeReady{});
  EXPECT_EQ(begun_, 1);
  EXPECT_FALSE(decided());
}

TEST_F(SupervisorTest, the_first_failure_decides_and_later_ones_change_nothing) {  // SV-1
  tell_it(BridgeReady{});
  tell_it(Failure{"the first"});
  tell_it(Failure{"the second"});
  tell_it(Finish{});
  ASSERT_TRUE(decided());
  const RunOutcome outcome = ended_.get();
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.error, "the first");
}

TEST_F(SupervisorTest, an_orderly_end_brings_the_summary_and_a_failure_after_it_changes_nothing) {  // SV-1
  tell_it(BridgeReady{});
  tell_it(Finish{});
  tell_it(Failure{"too late"});
  ASSERT_TRUE(decided());
  const RunOutcome outcome = ended_.get();
  EXPECT_TRUE(outcome.ok);
  ASSERT_EQ(outcome.processes.size(), 1u);
  EXPECT_EQ(outcome.processes[0].bytes, 77u);
}

TEST_F(SupervisorTest, a_process_of_another_build_ends_the_job_naming_both) {
  ProcessHello hello;
  hello.rank = ProcessRank(1);
  hello.build = "maestro 2 job test";
  tell_it(hello);
  ASSERT_TRUE(decided());
  const std::string error = ended_.get().error;
  EXPECT_NE(error.find("process 1"), std::string::npos) << error;
  EXPECT_NE(error.find("maestro 2 job test instead of maestro 1 job test"), std::string::npos) << error;
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
  ProcessHello hello;
  hello.rank = ProcessRank(2);
  hello.pid = 4711;
  ReplicaAddress replica;
  replica.replica = ReplicaIndex(1);
  hello.replicas.push_back(replica);
  EXPECT_EQ(process_label(hello, graph), "process 2 (pid 4711, section 'student' replica 1)");
}

}  // namespace
}  // namespace maestro
