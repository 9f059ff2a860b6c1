// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/reduction/nccl_exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>

#include "runtime/device/cpu_device.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "tests/actors/actor_bench.hpp"
#include "tests/actors/job/simulated_device.hpp"

namespace maestro::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t replicas = 3;

/// Three replicas of a student in processes 0 to 2; the test delivers their announcements.
class NcclExchangeTest : public ::testing::Test {
 protected:
  NcclExchangeTest() {
    GraphNode student;
    student.name = "student";
    student.replicas = replicas;
    graph_.add(student);
  }

  NcclExchangeOptions options_of(std::size_t self, Device& device, const DeviceBackend& backend) {
    NcclExchangeOptions options;
    options.graph = &graph_;
    options.members = replicas_of(graph_, SectionId(0));
    options.self = self;
    options.device = &device;
    options.gradients = gradients_.at(self);
    options.stage_shard = [this, self](ParameterBuffer) { staged_.push_back(self); };
    options.backend = &backend;
    options.end = end_;
    return options;
  }

  void make_members() {
    for (std::size_t self = 0; self < replicas; ++self) {
      devices_.push_back(std::make_unique<SimulatedDevice>(ops_));
      members_.push_back(std::make_unique<NcclExchange>(options_of(self, *devices_[self], backend_)));
    }
    const Directory directory = directory_of([this](std::size_t self) { return members_[self]->address().group; });
    for (const auto& member : members_) member->connect(directory, outbox());
  }

  ExchangeOutbox outbox() {
    ExchangeOutbox outbox;
    outbox.ready = [this](const caf::actor& to, ReductionReady ready) {
      announcements_.emplace_back(std::ranges::find(actors_, to) - actors_.begin(), ready);
    };
    outbox.broken = [this](const std::string& message) { broken_.push_back(message); };
    return outbox;
  }

  Directory directory_of(const std::function<std::vector<std::uint8_t>(std::size_t)>& id_of) {
    Directory directory;
    for (std::uint32_t self = 0; self < replicas; ++self) {
      ReplicaAddress address;
      address.section = SectionId(0);
      address.replica = ReplicaIndex(self);
      address.process = ProcessId(self);
      actors_.push_back(bench_.stand_in([](ReductionReady) {}));
      address.actor = actors_.back();
      address.reductions.resize(reduction_kinds);
      address.reductions.front().group = id_of(self);
      directory.processes.emplace_back().replicas.push_back(address);
    }
    return directory;
  }

  /// Delivers the pending announcements to their members.
  void deliver() {
    for (const auto& [to, ready] : announcements_) members_[static_cast<std::size_t>(to)]->ready(ready);
    announcements_.clear();
  }
  /// Begins an operation on all members and delivers all announcements.
  void begin_all(Operation operation) {
    for (const auto& member : members_) member->begin(operation);
    deliver();
  }
  WorkResult run_job(std::size_t self) {
    auto next = members_[self]->next_job();
    return *next.value().job();
  }
  /// Returns whether the member has a job; does not run it.
  bool may_exchange(std::size_t self) {
    const bool may = members_[self]->next_job().has_value();
    if (may) members_[self]->job_done();
    return may;
  }

  cpu::CpuOperatorTable ops_;
  SectionGraph graph_;
  SimulatedBackend backend_;
  std::shared_ptr<AbortReason> end_ = std::make_shared<AbortReason>();
  std::vector<std::unique_ptr<SimulatedDevice>> devices_;
  std::vector<std::unique_ptr<NcclExchange>> members_;
  ActorBench bench_;
  std::vector<caf::actor> actors_;
  std::vector<std::pair<std::ptrdiff_t, ReductionReady>> announcements_;
  std::vector<std::vector<float>> gradients_{{1, 10}, {2, 20}, {4, 40}};
  std::vector<std::size_t> staged_;
  std::vector<std::string> broken_;
};

TEST_F(NcclExchangeTest, members_join_on_their_devices_by_the_id_of_the_first) {
  make_members();
  EXPECT_FALSE(members_[0]->address().group.empty());
  EXPECT_TRUE(members_[1]->address().group.empty());
  EXPECT_TRUE(backend_.joined().empty()) << "not before the devices work";
  for (const std::size_t self : {2, 0, 1}) devices_[self]->run_all();
  EXPECT_THAT(backend_.joined(), ElementsAre(::testing::Pair(0, ElementsAre(2, 0, 1))));
  EXPECT_TRUE(broken_.empty());
}

TEST_F(NcclExchangeTest, an_exchange_is_queued_only_when_all_members_have_announced_it) {  // DG-2
  make_members();
  members_[0]->begin(Operation::sum);
  members_[1]->begin(Operation::sum);
  deliver();
  EXPECT_FALSE(may_exchange(0));
  EXPECT_FALSE(may_exchange(1));
  members_[2]->begin(Operation::sum);
  EXPECT_TRUE(may_exchange(2)) << "all announcements have reached it";
  EXPECT_FALSE(may_exchange(0)) << "the last announcement is under way";
  deliver();
  EXPECT_TRUE(may_exchange(0));
  EXPECT_TRUE(may_exchange(1));
}

TEST_F(NcclExchangeTest, a_member_that_is_one_exchange_ahead_is_not_counted_twice) {  // DG-2
  make_members();
  begin_all(Operation::sum);
  members_[1]->begin(Operation::sum);
  members_[2]->begin(Operation::sum);
  deliver();
  members_[0]->begin(Operation::sum);
  EXPECT_TRUE(may_exchange(0));
  members_[0]->begin(Operation::sum);
  EXPECT_FALSE(may_exchange(0)) << "no other member has come to the third exchange";
}

TEST_F(NcclExchangeTest, an_operation_is_one_job_and_complete_when_that_is_done) {  // XC-1
  make_members();
  for (const auto& device : devices_) device->run_all();
  EXPECT_TRUE(members_[0]->complete()) << "none has begun";
  begin_all(Operation::gather_second_moments);
  for (std::size_t self = 0; self < replicas; ++self) {
    EXPECT_FALSE(members_[self]->complete());
    EXPECT_EQ(run_job(self).broken(), "");
    EXPECT_FALSE(members_[self]->next_job()) << "the job is out";
    members_[self]->job_done();
    EXPECT_TRUE(members_[self]->complete());
  }
  EXPECT_THAT(staged_, ElementsAre(0, 1, 2));
  EXPECT_THAT(backend_.exchanges(), ElementsAre("gather_shards"));
}

TEST_F(NcclExchangeTest, results_are_there_when_the_device_tells_and_good_unless_the_group_had_failed) {  // DG-4
  make_members();
  for (const auto& device : devices_) device->run_all();
  for (const std::string why : {"", "the link is down"}) {
    backend_.break_next(why);
    begin_all(Operation::sum);
    std::vector<WorkResult> results;
    int finished = 0;
    for (std::size_t self = 0; self < replicas; ++self) {
      EXPECT_EQ(finished, 0) << "of an exchange that not all have queued";
      results.push_back(run_job(self));
      devices_[self]->finish([&finished](const std::string&) { ++finished; });
    }
    EXPECT_EQ(finished, 3);
    for (const auto& member : members_) member->job_done();
    if (why.empty()) {
      for (const auto& of_member : gradients_) EXPECT_THAT(of_member, ElementsAre(7, 70));
      for (const WorkResult& result : results) EXPECT_EQ(result.broken(), "");
    } else {
      EXPECT_EQ(results[1].broken(),
                "exchange of gradients with section 'student' replica 0 (process 0), section 'student' replica 2 "
                "(process 2): the link is down");
    }
  }
  begin_all(Operation::sum);
  try {
    (void)run_job(0);
    FAIL() << "a broken group took an exchange";
  } catch (const ExchangeBroken& broken) {
    EXPECT_THAT(broken.what(), HasSubstr("replica 1 (process 1), section 'student' replica 2 (process 2): the link"));
  }
}

TEST_F(NcclExchangeTest, mistakes_of_its_own_are_no_trouble_of_peers) {
  devices_.push_back(std::make_unique<SimulatedDevice>(ops_));
  NcclExchangeOptions options = options_of(0, *devices_[0], backend_);
  options.stage_shard = [](ParameterBuffer) { throw std::logic_error("a mistake"); };
  NcclExchange member(std::move(options));
  member.connect(directory_of([&](std::size_t) { return member.address().group; }), outbox());
  devices_[0]->run_all();
  member.begin(Operation::gather_first_moments);
  for (const std::uint32_t peer : {1, 2}) member.ready({ReductionKind::replicas, LayoutRank(0), peer});
  const auto next = member.next_job();
  ASSERT_TRUE(next);
  EXPECT_THROW((void)next->job(), std::logic_error);
}

/// A group that some members never join.
class LonelyBackend final : public DeviceBackend {
 public:
  [[nodiscard]] std::size_t devices() const override { return 0; }
  [[nodiscard]] std::string describe(std::size_t /*index*/) const override { return "lonely"; }
  [[nodiscard]] std::size_t used_bytes(std::size_t /*index*/) const override { return 0; }
  [[nodiscard]] std::size_t memory_bytes(std::size_t /*index*/) const override { return 0; }
  [[nodiscard]] std::unique_ptr<Device> open(const DeviceOptions& /*options*/) const override { return nullptr; }
  [[nodiscard]] std::vector<std::byte> make_group_id() const override { return {std::byte{1}}; }
  [[nodiscard]] std::unique_ptr<Communicator> join(Device& /*device*/, const GroupRank& rank) const override {
    joining_.set_value();
    while (!rank.abort->is_set()) std::this_thread::yield();
    throw CommunicatorAborted(rank.abort->why());
  }
  [[nodiscard]] std::vector<std::byte> export_memory(Device& /*device*/, const std::byte* /*block*/) const override {
    return {};
  }
  [[nodiscard]] std::unique_ptr<ImportedMemory> import_memory(Device& /*device*/,
                                                              std::span<const std::byte> /*exported*/,
                                                              std::string& /*why_not*/) const override {
    return nullptr;
  }
  void wait_for_join() const { joining_.get_future().wait(); }

 private:
  mutable std::promise<void> joining_;
};

TEST_F(NcclExchangeTest, the_end_of_the_run_wakes_a_device_that_waits_for_members_that_never_come) {
  const LonelyBackend backend;
  std::vector<std::string> told;
  {
    CpuDevice device("cuda:0", -1, ops_);
    NcclExchange member(options_of(1, device, backend));
    const auto id_of = [](std::size_t self) { return std::vector<std::uint8_t>(self == 0 ? 1 : 0); };
    ExchangeOutbox outbox;
    outbox.ready = [](const caf::actor&, ReductionReady) {};
    outbox.broken = [&told](const std::string& message) { told.push_back(message); };
    member.connect(directory_of(id_of), outbox);
    backend.wait_for_join();
    end_->set("the run has ended");
    device.stop();
    member.begin(Operation::sum);
    for (const std::uint32_t peer : {0, 2}) member.ready({ReductionKind::replicas, LayoutRank(0), peer});
    const auto next = member.next_job();
    ASSERT_TRUE(next);
    EXPECT_THROW((void)next->job(), ExchangeBroken) << "there is no group";
  }
  EXPECT_THAT(told, ElementsAre(HasSubstr("replica 0 (process 0), section 'student' replica 2 (process 2): the run has "
                                          "ended")));
}

}  // namespace
}  // namespace maestro::testing
