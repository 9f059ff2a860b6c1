// SPDX-License-Identifier: Apache-2.0
// The fixture of the coordinator's tests.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <future>
#include <sstream>

#include "actors/run/coordinator/coordinator.hpp"
#include "actors/run/coordinator/planner.hpp"
#include "tests/actors/actor_bench.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {

/// A coordinator with a trained replica. The test acts for the replica: it receives work items and boundaries, and
/// answers on demand.
class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() : console_(ConsoleStreams{terminal_, terminal_, false, {}}) {
    for (const char* name : {"first", "second"}) {
      GraphNode node;
      node.name = name;
      node.micro_batch = 2;
      graph_.add(node);
    }
  }
  ~CoordinatorTest() override { snapshots_.stop(); }

  void start(std::int64_t ahead, const RunScheduleOptions& schedule) {
    CoordinatorOptions options;
    options.graph = &graph_;
    options.schedule = schedule;
    options.ahead = ahead;
    options.global_batch = 2;
    options.record = record_;
    options.snapshots = &snapshots_;
    if (with_shadows_) options.shadows = &shadows_;
    options.console = &console_;
    options.current_step = &current_step_;
    options.max_left_out = max_left_out_;
    options.epoch_samples = epoch_samples_;
    options.global_clip = global_clip_;
    options.joined_norms = global_clip_ || guard_.has_value();
    options.guard = guard_;
    options.data_source = made_until_ ? rollout_source() : bench_.stand_in([this](const BatchRequest& request) {
      BatchMetadata batch;
      batch.step = request.step;
      batch.pass = request.pass;
      if (!all_left_out_) batch.samples = {{SampleId(1), 3}, {SampleId(2), 3}};
      batch.target_tokens = all_left_out_ ? 0 : 6;
      batch.left_out = left_out_;
      return batch;
    });
    if (made_until_) options.generator = "generator";
    options.supervisor = bench_.stand_in([this](Finish) { finished_ = true; },
                                         [this](const Failure& failure) { failure_ = failure.message; });
    StepPlannerOptions planning;
    planning.graph = &graph_;
    planning.policy = make_policy("arrival");
    options.measure = measure_;
    options.predicted = predicted_;
    options.figures = figures_;
    options.planner = measure_ ? watched_planner(std::move(planning))
                               : bench_.spawn<Planner>(std::move(planning), nullptr, options.supervisor);
    coordinator_ = bench_.spawn<Coordinator>(std::move(options));
    Directory directory;
    directory.coordinator = coordinator_;
    ProcessInfo info;
    for (std::uint32_t section = 0; section < graph_.nodes().size(); ++section) {
      ReplicaAddress address;
      address.section = SectionId(section);
      address.actor = lane_of(section);
      info.replicas.push_back(address);
    }
    directory.processes.push_back(info);
    if (second_process_) {
      ReplicaAddress address{SectionId(0), ReplicaIndex(1), ProcessId(1), lane_of(0), {}, {}};
      directory.processes.emplace_back().replicas.push_back(address);
    }
    bench_.send(coordinator_, directory);
    if (begins_) bench_.send(coordinator_, Begin{});
    bench_.deliver_all();
  }
  /// Spawns a data source whose samples are made by a generator: it answers requests up to step `made_until_`.
  caf::actor rollout_source() {
    return bench_.stand_in(
        [this](const BatchRequest& request) {
          if (request.step.value() > *made_until_) return;
          BatchMetadata batch;
          batch.step = request.step;
          batch.pass = request.pass;
          batch.samples = {{SampleId(1), 3}};
          batch.target_tokens = 3;
          bench_.send(coordinator_, batch);
        },
        [this](const Directory&) { ++directories_; },
        [this](const StepClosed& closed) { closed_.push_back(closed.step.value()); },
        [this](const BatchWithdrawn& withdrawn) { withdrawn_.push_back(withdrawn.step.value()); });
  }
  /// Adds a generator that takes the weights of the first section.
  void add_generator() {
    GraphNode node;
    node.name = "generator";
    node.role = Role::generator;
    graph_.connect_weights(SectionId(0), graph_.add(node));
  }
  /// Spawns an actor that plans and keeps the transfers of each request.
  caf::actor watched_planner(StepPlannerOptions planning) {
    planner_.emplace(std::move(planning));
    return bench_.stand_in([this](const PlanStep& request) {
      transfers_.push_back(request.transfers);
      StepPlanned answer;
      answer.planned = std::make_shared<PlannedStep>(
          planner_->plan(request.batch.step, request.batch.pass, request.batch.samples, 1).value_or_throw());
      return answer;
    });
  }
  caf::actor lane_of(std::uint32_t section) {
    return bench_.stand_in([this](const MicroBatchOrder& order) { tokens_ += order.plans.size(); },
                           [this](const BoundaryOrder& token) { marks_.push_back(token.mark); },
                           [this](const NormTotal& total) { totals_.push_back(total); },
                           [this, section](StandStill) {
                             return StandsStill{SectionId(section), ReplicaIndex(0), settled_[section], whole_};
                           });
  }
  void finish_step(std::uint64_t step) {
    for (std::uint32_t section = 0; section < 2; ++section) finish_step(step, section);
  }
  void finish_step(std::uint64_t step, std::uint32_t section) {
    bench_.send(coordinator_, StepDone{SectionId(section), ReplicaIndex(0), StepId(step), Pass::train, 1.0, 0.1});
    bench_.deliver_all();
  }
  void write_part(const StepBoundary& mark, std::uint32_t section) {
    SectionState state;
    state.config = "{}";
    const CheckpointStore& store = mark.shadow ? shadows_ : snapshots_.store();
    const auto files = store.write_section(mark.staging, graph_.nodes()[section].name, state);
    ASSERT_TRUE(files) << files.error().message;
    SnapshotWritten written{SectionId(section), mark.step, mark.shadow, {}};
    for (const FileRecord& file : *files) written.files.push_back({file.path, file.bytes, file.checksum});
    bench_.send(coordinator_, written);
    bench_.deliver_all();
  }
  /// Waits until the writer has done all its work, then delivers its reports.
  void drain_writer() {
    std::promise<void> drained;
    snapshots_.run([&drained] { return [&drained] { drained.set_value(); }; }, {});
    drained.get_future().wait();
    bench_.deliver_all();
  }
  [[nodiscard]] std::uint64_t announced() const { return marks_.size() / 2; }

  TempFolder folder_;
  SectionGraph graph_;
  std::shared_ptr<RunRecord> record_ = std::make_shared<RunRecord>();
  std::ostringstream terminal_;
  Console console_;
  std::atomic<std::uint64_t> current_step_ = 0;
  bool finished_ = false;
  std::string failure_;
  std::vector<std::string> left_out_;  // samples left out of every batch
  std::int64_t max_left_out_ = 0;
  bool all_left_out_ = false;  // whether all samples of each batch are left out
  std::uint64_t epoch_samples_ = 1;
  bool global_clip_ = false;
  std::optional<RunGuard> guard_;
  bool begins_ = true;
  std::optional<std::uint64_t> made_until_;  // of a run with a generator
  std::size_t directories_ = 0;
  std::vector<std::uint64_t> closed_, withdrawn_;
  bool measure_ = false;
  PlanConfig predicted_;
  std::shared_ptr<StepFigures> figures_ = std::make_shared<StepFigures>();
  std::optional<StepPlanner> planner_;                    // used with measure_
  std::vector<std::vector<MeasuredTransfer>> transfers_;  // used with measure_
  bool with_shadows_ = false;
  bool second_process_ = false;    // whether a second process has another replica of the first section
  std::array<StepId, 2> settled_;  // for the replica of each section
  bool whole_ = true;
  std::size_t tokens_ = 0;
  std::vector<StepBoundary> marks_;
  std::vector<NormTotal> totals_;
  testing::ActorBench bench_;
  CheckpointStore shadows_{folder_.path() / "shadows"};
  SnapshotWriter snapshots_{CheckpointStore(folder_.path() / "checkpoints")};  // before the actors it sends to
  caf::actor coordinator_;
};

inline RunScheduleOptions plain(std::uint64_t steps) {
  RunScheduleOptions options;
  options.steps = steps;
  options.validate_at_end = false;
  options.checkpoint_at_end = false;
  return options;
}

}  // namespace maestro
