// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_rank.hpp"

#include <gtest/gtest.h>

#include <future>

#include "runtime/collective/thread_group.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "tests/actors/actor_bench.hpp"

namespace maestro::testing {
namespace {

class Idle final : public Section {
 public:
  [[nodiscard]] Ports ports() const override { return {}; }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape&, const Inputs&, Outputs&) override {}
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {}; }
  std::vector<StateEntry> state() override { return {}; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 private:
  Parameters parameters_;
};

TraceOptions no_trace() {
  TraceOptions options;
  options.on = false;
  return options;
}

/// A replica with two tensor ranks on separate threads.
class ReplicaRankTest : public ::testing::Test {
 protected:
  ReplicaRankTest() {
    GraphNode node;
    node.name = "student";
    node.layout = {2, 1};
    graph_.add(node);
    spec_.graph = &graph_;
    spec_.network = &network_;
    spec_.trace = &trace_;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      devices_.push_back(std::make_unique<CpuDevice>("cpu:" + std::to_string(rank), -1, ops_));
      SectionContext context;
      context.ops = &ops_;
      context.parallel = {node.layout, rank, groups_[static_cast<std::size_t>(rank)].get(), nullptr};
      spec_.ranks.push_back({std::make_shared<SectionRunner>(std::make_unique<Idle>(), context, OptimizerConfig(), 1),
                             devices_.back().get()});
    }
  }
  ~ReplicaRankTest() override {
    groups_[0]->abort("the test is over");  // otherwise a failing test would never end
    for (const auto& device : devices_) device->stop();
    network_.stop();
  }
  /// Runs a job on each rank. Returns false if a job has not ended after a minute. Only one job may send a message to
  /// the replica, because the bench accepts messages from one thread at a time.
  bool run(const std::vector<ReplicaRank::Job>& jobs) {
    std::vector<std::future<void>> ends;
    for (std::uint32_t at = 0; at < 2; ++at) {
      ReplicaRank rank(spec_, LayoutRank(at), {});
      rank.submit(rank.trace().work("job", TraceCategory::step, StepId(1)), jobs[at], {}, replica_);
      const auto ended = std::make_shared<std::promise<void>>();
      ends.push_back(ended->get_future());
      devices_[at]->submit(Priority::critical, [ended] { ended->set_value(); });  // after the job
    }
    bool all = true;
    for (auto& end : ends) all = end.wait_for(std::chrono::seconds(60)) == std::future_status::ready && all;
    if (all) bench_.deliver_all();
    return all;
  }

  cpu::CpuOperatorTable ops_;
  SectionGraph graph_;
  Network network_{NetworkOptions(), false};
  TraceRecorder trace_{ProcessId(0), "test", no_trace()};
  std::vector<std::unique_ptr<Communicator>> groups_ = make_thread_group(2);
  std::vector<std::unique_ptr<CpuDevice>> devices_;
  ReplicaSpec spec_;
  ActorBench bench_;
  std::vector<std::string> failures_;
  std::vector<std::string> broken_;
  caf::actor replica_ =
      bench_.stand_in([this](const Failure& failure) { failures_.push_back(failure.message); },
                      [this](const TransferBroken& broken) { broken_.push_back(broken.message); }, [](WorkDone) {});
};

TEST_F(ReplicaRankTest, a_rank_that_fails_wakes_the_one_that_waits_for_it_and_is_the_only_one_to_tell) {  // RJ-1
  const auto waits = [this] {
    std::vector<float> values(8, 1.0f);
    groups_[0]->all_reduce_sum(values);
    return WorkResult();
  };
  const auto fails = []() -> WorkResult { throw std::runtime_error("out of memory"); };
  ASSERT_TRUE(run({waits, fails})) << "the first rank still waits for the second";
  EXPECT_EQ(failures_, std::vector<std::string>{"out of memory"});
  std::vector<float> values(8, 1.0f);
  for (const auto& group : groups_) EXPECT_THROW(group->all_reduce_sum(values), CommunicatorAborted);  // CM-2
}

TEST_F(ReplicaRankTest, an_error_of_a_job_is_a_failure_as_an_exception_is) {  // RJ-1
  const auto fails = [] { return Result<WorkResult>(Error{ErrorCode::internal, "the optimizer has diverged"}); };
  const auto waits = [this] {
    std::vector<float> values(8, 1.0f);
    groups_[0]->all_reduce_sum(values);
    return WorkResult();
  };
  ASSERT_TRUE(run({waits, fails})) << "the first rank still waits for the second";
  EXPECT_EQ(failures_, std::vector<std::string>{"the optimizer has diverged"});
}

TEST_F(ReplicaRankTest, an_exchange_that_breaks_is_left_to_whoever_knows_of_lost_peers) {  // DG-4, RJ-2
  const auto nothing = [] { return WorkResult(); };
  const auto breaks_later = [] { return WorkResult::of_exchange([] { return std::string("the link is down"); }); };
  ASSERT_TRUE(run({breaks_later, nothing}));
  EXPECT_EQ(broken_, std::vector<std::string>{"the link is down"});
  const auto breaks_at_once = []() -> WorkResult { throw ExchangeBroken("the peer is gone"); };
  ASSERT_TRUE(run({nothing, breaks_at_once}));
  EXPECT_EQ(broken_.back(), "the peer is gone");
  EXPECT_TRUE(failures_.empty());
}

}  // namespace
}  // namespace maestro::testing
