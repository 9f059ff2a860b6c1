// SPDX-License-Identifier: Apache-2.0
// The estimated memory of a plan: a frozen teacher with two replicas feeds a student with two. Each section's outputs
// take 64 bytes a row.
#include "actors/job/memory_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "actors/job/plan_checks.hpp"

namespace maestro {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double mega = 1e6;

/// Keeps 1,000 bytes per token for its backward pass, and uses 500 more temporarily.
class Measured final : public Section {
 public:
  [[nodiscard]] Ports ports() const override { return {}; }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& /*tape*/, const Inputs& /*inputs*/, Outputs& /*outputs*/) override {}
  [[nodiscard]] Cost cost(const SampleShape& sample) const override {
    const auto tokens = static_cast<double>(sample.tokens);
    return {.bytes = 1000 * tokens, .working = 500 * tokens};
  }
  [[nodiscard]] std::vector<StateEntry> state() override { return {}; }
  [[nodiscard]] std::string config_json() const override { return {}; }

 private:
  Parameters parameters_;
};

class MemoryTable : public ::testing::Test {
 protected:
  MemoryTable() { make(2); }
  void make(std::int64_t micro_batch_of_teacher) {
    plan_ = ResolvedJob();
    add("teacher", Role::frozen, {}, micro_batch_of_teacher);
    add("student", Role::trained, {{"in", DType::f32, 16, false, false}});
    plan_.graph.connect("teacher", "out", "student", "in");
    plan_.largest = {SampleId(0), 1000};
    plan_.train.global_batch = 8;
    plan_.train.checkpoint_at_end = false;
    plan_.program_bytes = 50 * mega;
    put(1);
  }
  void add(const std::string& name, Role role, std::vector<Port> inputs, std::int64_t micro_batch = 2) {
    GraphNode node;
    node.name = name;
    node.role = role;
    node.replicas = 2;
    node.micro_batch = micro_batch;
    node.ports.inputs = std::move(inputs);
    node.ports.outputs = {{"out", DType::f32, 16, false, false}};
    plan_.graph.add(node);
    PlannedSection section;
    section.config.name = name;
    section.config.replicas = 2;
    plan_.sections.push_back(std::move(section));
    plan_.meta_sections.push_back(std::make_shared<Measured>());
    plan_.below.emplace_back();
    plan_.held.push_back({.all = 1'000'000, .matrices = 800'000, .table = 100'000});
  }
  /// Places replica 1 of both sections on the last of `processes`.
  void put(std::uint32_t processes) {
    plan_.options.processes = processes;
    plan_.places.clear();
    for (std::uint32_t section = 0; section < 2; ++section) {
      for (std::uint32_t replica = 0; replica < 2; ++replica) {
        plan_.places.push_back({SectionId(section),
                                ReplicaIndex(replica),
                                ProcessId(replica * (processes - 1)),
                                {{DeviceId::Kind::cpu, static_cast<int>(replica)}}});
      }
    }
  }
  [[nodiscard]] MemoryUse use(std::uint32_t section, std::uint32_t replica) const {
    return estimate_memory(plan_).ranks[section * 2 + replica].use;
  }

  ResolvedJob plan_;
};

TEST_F(MemoryTable, replicas_of_a_process_share_frozen_values_and_nothing_touches_its_rings) {  // ME-1
  EXPECT_EQ(use(0, 0).parameters, 4 * mega);
  EXPECT_EQ(use(0, 1).parameters, 0);
  EXPECT_EQ(use(1, 1).parameters, 4 * mega);
  EXPECT_EQ(use(1, 1).edges, use(1, 0).edges);
  const double in_process = use(1, 0).edges;
  put(2);
  EXPECT_EQ(use(0, 1).parameters, 4 * mega);
  EXPECT_GT(use(1, 0).edges, in_process) << "another process writes into the rings";
  plan_.transport.force_rma = true;
  put(1);
  EXPECT_GT(use(1, 0).edges, in_process);
}

TEST_F(MemoryTable, activations_are_those_of_a_micro_batch_of_the_largest_samples) {
  EXPECT_EQ(use(0, 0).activations, 2 * 1000 * 500);
  EXPECT_EQ(use(1, 0).activations, 2 * 1000 * 1500);
}

TEST_F(MemoryTable, gradients_of_replicas_in_other_processes_and_copies_for_checkpoints_count) {
  EXPECT_EQ(use(1, 0).gradients, 4 * mega);
  EXPECT_EQ(use(1, 0).checkpoint, 0);
  plan_.sections[1].config.zero = true;
  plan_.train.checkpoint_at_end = true;
  put(2);
  EXPECT_EQ(use(1, 0).gradients, 6 * mega);
  EXPECT_EQ(use(1, 0).optimizer, 4 * mega);
  EXPECT_EQ(use(1, 0).checkpoint, 12 * mega);
  EXPECT_EQ(use(1, 1).checkpoint, 0) << "the first replica writes it";
  EXPECT_EQ(use(0, 0).checkpoint, 0);
}

TEST_F(MemoryTable, sums_are_by_process_and_by_gpu) {
  const auto sum = [this](std::uint32_t section, std::uint32_t replica) { return use(section, replica).sum(); };
  MemoryEstimate estimate = estimate_memory(plan_);
  EXPECT_THAT(estimate.processes, ElementsAre(50 * mega + sum(0, 0) + sum(0, 1) + sum(1, 0) + sum(1, 1)));
  EXPECT_EQ(host_bytes(estimate), estimate.processes[0]);
  const DeviceId gpu{DeviceId::Kind::cuda, 0};
  plan_.places[2].devices = {gpu};
  estimate = estimate_memory(plan_);
  EXPECT_EQ(estimate.devices.at({0, gpu}), use(1, 0).on_device());
  constexpr double of_cuda = 450;  // context and libraries, once per process
  EXPECT_EQ(estimate.processes[0], (of_cuda + 50) * mega + sum(0, 0) + sum(0, 1) + use(1, 0).edges + sum(1, 1));
  plan_.places[3].devices = {gpu};
  EXPECT_EQ(estimate_memory(plan_).processes[0],
            (of_cuda + 50) * mega + sum(0, 0) + sum(0, 1) + use(1, 0).edges + use(1, 1).edges);
}

TEST_F(MemoryTable, what_sections_of_a_gpu_exchange_lies_in_its_memory) {  // ME-1
  const DeviceId gpu{DeviceId::Kind::cuda, 0};
  const auto put_both_on_gpu = [&] {
    for (ReplicaPlacement& place : plan_.places) place.devices = {gpu};
  };
  put_both_on_gpu();
  const double payload = 2 * 1000 * 64;
  EXPECT_EQ(use(0, 0).edges, 0);
  EXPECT_GT(use(0, 0).device_edges, payload);
  EXPECT_EQ(use(1, 0).device_edges, 0) << "read in place";
  make(1);
  put_both_on_gpu();
  EXPECT_EQ(use(1, 0).device_edges, payload) << "two micro-batches are gathered";
  put(2);
  put_both_on_gpu();
  EXPECT_GT(use(1, 0).edges, 0) << "the other process may write into memory of the host or of the device";
  EXPECT_EQ(use(1, 0).device_edges, use(1, 0).edges);
}

TEST_F(MemoryTable, memory_that_is_pinned_for_a_gpu_counts_in_full) {  // ME-1
  plan_.train.ahead = 1;
  const double touched = use(0, 0).edges;
  plan_.places[2].devices = {{DeviceId::Kind::cuda, 0}};
  EXPECT_GT(use(0, 0).edges, touched);
}

TEST_F(MemoryTable, a_process_has_plans_for_numbers_of_pictures_on_its_gpus_once) {
  plan_ = {};
  add("vision", Role::frozen, {{"pixels", DType::f32, 16, false, false, Axis::patches}});
  add("projector", Role::frozen, {{"in", DType::f32, 16, false, false, Axis::patches}});
  plan_.largest = {SampleId(0), 1000};
  put(1);
  for (ReplicaPlacement& place : plan_.places) place.devices = {{DeviceId::Kind::cuda, 0}};
  const auto process_bytes = [this](DType precision) {
    for (PlannedSection& section : plan_.sections) section.config.precision = precision;
    const MemoryEstimate estimate = estimate_memory(plan_);
    double of_ranks = 0;
    for (const RankMemory& rank : estimate.ranks) of_ranks += rank.use.sum() - rank.use.on_device();
    return estimate.processes[0] - of_ranks;
  };
  const auto numbers = static_cast<double>(estimate_memory(plan_).ranks.front().demand.micro_batch);
  EXPECT_DOUBLE_EQ(process_bytes(DType::bf16) - process_bytes(DType::f32), numbers * 21 * mega);
}

TEST_F(MemoryTable, equal_ranks_stand_in_one_line_and_the_sums_below) {
  plan_.train.checkpoint_at_end = false;
  const std::vector<std::string> lines = describe_memory(plan_);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("teacher replica 0: parameters 4 MB, activations 1 MB"),
                                 HasSubstr("teacher replica 1: activations 1 MB"),
                                 HasSubstr("student replica 0..1: parameters 4 MB, gradients 4 MB, optimizer 8 MB, "),
                                 HasSubstr("process 0: ")));
  EXPECT_THAT(lines[2], HasSubstr(" each"));
  EXPECT_THAT(memory_in_short(plan_), HasSubstr("about "));
}

TEST_F(MemoryTable, a_section_above_its_memory_is_refused) {
  plan_.sections[1].config.memory_mib = 64;
  check_memory(plan_);
  plan_.sections[1].config.memory_mib = 17;
  EXPECT_THAT([this] { check_memory(plan_); },
              ::testing::ThrowsMessage<JobError>(HasSubstr("student.micro_batch = 2 needs about ")));
}

TEST_F(MemoryTable, sections_that_fit_a_device_alone_are_refused_where_they_do_not_together) {
  const double student = use(1, 0).sum() / (1 << 20);
  plan_.sections[1].config.memory_mib = static_cast<std::int64_t>(std::ceil(student));
  for (ReplicaPlacement& place : plan_.places) {
    const int device = static_cast<int>(2 * place.section.value() + place.replica.value());
    if (place.section.value() < 2) place.devices = {{DeviceId::Kind::cpu, device}};
  }
  check_memory(plan_);
  for (ReplicaPlacement& place : plan_.places)
    place.devices = {{DeviceId::Kind::cpu, static_cast<int>(place.replica.value())}};
  EXPECT_THAT([this] { check_memory(plan_); },
              ::testing::ThrowsMessage<JobError>(
                  ::testing::AllOf(HasSubstr("student.memory_mib = "), HasSubstr(": the sections on cpu:0 need about "),
                                   HasSubstr("(teacher replica 0 "), HasSubstr(", student replica 0 "),
                                   HasSubstr("give them separate devices, lower a micro_batch, or raise memory_mib"))));
}

}  // namespace
}  // namespace maestro
