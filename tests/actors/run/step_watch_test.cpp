// SPDX-License-Identifier: Apache-2.0
#include "actors/run/watch/step_watch.hpp"

#include <gtest/gtest.h>

#include "actors/replica/pass_log.hpp"

namespace maestro {
namespace {

using Clock = StepWatch::Clock;
using std::chrono::milliseconds;

/// An encoder and a decoder section with one lane each; both process `micro_batches` micro-batches.
class StepWatchTest : public ::testing::Test {
 protected:
  StepWatchTest() { connect(1); }

  void connect(std::int64_t decoders) {
    graph_ = SectionGraph();
    for (const char* name : {"encoder", "decoder"}) {
      GraphNode node;
      node.name = name;
      if (graph_.nodes().empty()) {
        node.ports.outputs.push_back({"out", DType::f32, 1, true, false});
      } else {
        node.ports.inputs.push_back({"in", DType::f32, 1, true, false});
      }
      node.max_in_flight = 4;
      if (!graph_.nodes().empty()) node.replicas = decoders;
      graph_.add(std::move(node));
    }
    graph_.connect("encoder", "out", "decoder", "in");
  }

  StepPlanned planned(std::string_view policy, std::size_t samples, std::vector<std::vector<double>> speeds = {}) {
    StepPlannerOptions options;
    options.speeds = std::move(speeds);
    options.graph = &graph_;
    options.policy = make_policy(policy);
    options.costs = CostModel([](SectionId, const SampleRef&) { return PassCost{1, 2}; }, 1);
    options.limits.train_samples = static_cast<std::int64_t>(samples);
    std::vector<SampleRef> batch;
    for (std::size_t at = 0; at < samples; ++at) batch.push_back({SampleId(at), 4});
    StepPlanned message;
    message.planned = std::make_shared<PlannedStep>(
        StepPlanner(std::move(options)).plan(StepId(5), Pass::train, batch, 1).value_or_throw());
    message.planning_ms = 0.25;
    return message;
  }

  static MicroBatchDone done(std::uint32_t section, std::uint32_t index, double forward, double backward, double age) {
    MicroBatchDone message;
    message.section = SectionId(section);
    message.step = StepId(5);
    message.index = index;
    message.forward_ms = forward;
    message.backward_ms = backward;
    message.age_ms = age;
    return message;
  }

  SectionGraph graph_;
  Clock::time_point start_ = Clock::now();
};

TEST_F(StepWatchTest, a_row_spans_the_passes_as_they_were_and_bounds_them_from_below) {
  StepWatch watch(graph_, planned("wavefront", 1));
  watch.done(done(1, 0, 20, 30, 50), start_ + milliseconds(110));   // began at 60
  watch.done(done(0, 0, 10, 15, 145), start_ + milliseconds(150));  // began at 5
  const SchedulingRow row = watch.row(start_);
  EXPECT_EQ(row.step, StepId(5));
  EXPECT_NEAR(row.begin_ms, 5, 1e-3);
  EXPECT_NEAR(row.makespan_ms, 145, 1e-3);
  EXPECT_NEAR(row.lower_bound_ms, 75, 1e-6);  // 10, both passes of the decoder, 15
  EXPECT_NEAR(row.utilization.at("encoder"), 25.0 / 145, 1e-6);
  EXPECT_NEAR(row.utilization.at("decoder"), 50.0 / 145, 1e-6);
  EXPECT_DOUBLE_EQ(row.planned_ms, 6);
  EXPECT_DOUBLE_EQ(row.planning_ms, 0.25);
}

TEST_F(StepWatchTest, times_are_by_section_and_micro_batch) {
  StepWatch watch(graph_, planned("arrival", 2));
  watch.done(done(1, 1, 20, 30, 50), start_);
  watch.done(done(0, 0, 10, 15, 145), start_);
  const PassTimes times = watch.times();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[1].at(1).forward, 20);
  EXPECT_EQ(times[1].at(1).backward, 30);
  EXPECT_EQ(times[0].at(0).backward, 15);
  EXPECT_EQ(times[0].at(1).forward, 0) << "it has not been done";
}

TEST_F(StepWatchTest, reports_that_were_handled_late_make_no_section_busier_than_it_can_be) {
  StepWatch watch(graph_, planned("wavefront", 1));
  watch.done(done(1, 0, 20, 30, 50), start_ + milliseconds(200));
  watch.done(done(0, 0, 10, 15, 25), start_ + milliseconds(200));
  const SchedulingRow row = watch.row(start_);
  EXPECT_NEAR(row.makespan_ms, 75, 1e-6);  // not 50: the passes follow each other
  EXPECT_NEAR(row.utilization.at("decoder"), 50.0 / 75, 1e-6);
}

TEST_F(StepWatchTest, the_bound_counts_no_mean_of_transfers) {
  const StepPlanned step = planned("wavefront", 1);
  step.planned->workload.edges.at(0).transfer_ms = 50;
  StepWatch watch(graph_, step);
  watch.done(done(1, 0, 20, 30, 50), start_ + milliseconds(110));
  watch.done(done(0, 0, 10, 15, 145), start_ + milliseconds(150));
  EXPECT_NEAR(watch.row(start_).lower_bound_ms, 75, 1e-6);
}

TEST_F(StepWatchTest, measured_passes_keep_forward_and_backward_apart) {
  StepWatch watch(graph_, planned("wavefront", 1));
  watch.done(done(0, 0, 10, 15, 20), start_);
  watch.done(done(1, 0, 20, 30, 20), start_);
  const std::vector<MeasuredPass> passes = watch.measured();
  ASSERT_EQ(passes.size(), 4u);
  for (const MeasuredPass& pass : passes) {
    const double expected = pass.section == SectionId(0) ? (pass.backward ? 15 : 10) : (pass.backward ? 30 : 20);
    EXPECT_DOUBLE_EQ(pass.ms, expected);
    EXPECT_EQ(pass.samples.size(), 1u);
  }
}

TEST_F(StepWatchTest, times_of_a_slow_replica_count_by_its_speed_and_do_not_distort_the_model) {
  connect(2);
  const StepPlanned step = planned("arrival", 4, {{}, {1, 0.25}});
  StepWatch watch(graph_, step);
  for (const MicroBatchPlan& batch : step.planned->plan.micro_batches) {
    const bool slow = batch.section == SectionId(1) && batch.replica == ReplicaIndex(1);
    MicroBatchDone message = done(batch.section.value(), batch.index, slow ? 40 : 10, slow ? 80 : 20, 1);
    message.replica = batch.replica;
    watch.done(message, start_ + milliseconds(500));
  }
  CostModel model;
  for (const MeasuredPass& pass : watch.measured()) {
    EXPECT_DOUBLE_EQ(pass.ms, pass.backward ? 20 : 10);
    model.measured(pass);
  }
  const std::vector<SampleRef> samples{{SampleId(0), 4}};
  EXPECT_DOUBLE_EQ(model.of(SectionId(1), samples).forward, 10) << "of the fast replica";
  const SchedulingRow row = watch.row(start_);
  EXPECT_NEAR(row.lower_bound_ms, 10 + 4 * 30 / 1.25 + 20, 1e-6)
      << "on lanes of 1 and 0.25, between the encoder's passes";
  EXPECT_NEAR(row.utilization.at("decoder"), (2 * 30 + 2 * 120) / (2 * row.makespan_ms), 1e-6) << "as it was";
}

TEST_F(StepWatchTest, micro_batches_may_be_moved_out_of_the_plan_that_is_watched) {
  const StepPlanned step = planned("wavefront", 2);
  StepWatch watch(graph_, step);
  for (MicroBatchPlan& batch : step.planned->plan.micro_batches) const MicroBatchPlan sent = std::move(batch);
  for (std::uint32_t index = 0; index < 2; ++index) {
    watch.done(done(0, index, 10, 15, 25), start_ + milliseconds(30));
    watch.done(done(1, index, 20, 30, 50), start_ + milliseconds(100));
  }
  EXPECT_TRUE(watch.active(SectionId(0)));
  EXPECT_NEAR(watch.row(start_).utilization.at("decoder"), 100.0 / 125, 1e-6);  // of the bound, 10 + 2 x 50 + 15
}

TEST_F(StepWatchTest, is_complete_in_a_section_when_the_passes_of_its_micro_batches_are_done) {
  EXPECT_FALSE(StepWatch().complete(SectionId(0)));
  StepWatch watch(graph_, planned("wavefront", 1));
  watch.done(done(0, 0, 10, 15, 20), start_);
  EXPECT_TRUE(watch.complete(SectionId(0)));
  EXPECT_FALSE(watch.complete(SectionId(1)));
  watch.done(done(1, 0, 20, 30, 20), start_);
  EXPECT_TRUE(watch.complete(SectionId(1)));
}

TEST_F(StepWatchTest, a_section_without_micro_batches_is_not_active) {
  const StepWatch watch(graph_, planned("wavefront", 0));
  EXPECT_FALSE(watch.active(SectionId(0)));
  EXPECT_EQ(watch.row(start_).makespan_ms, 0);
}

TEST_F(StepWatchTest, a_bulk_synchronous_step_has_phases) {
  StepWatch watch(graph_, planned("bulk_synchronous", 2));
  EXPECT_TRUE(watch.phases().first().empty());  // phase 0 is open from the start
  EXPECT_FALSE(watch.phases().done(0, 0));
  const auto decoder = watch.phases().done(0, 0);
  ASSERT_TRUE(decoder);
  EXPECT_EQ(decoder->phase, 1u);
  EXPECT_EQ(decoder->lanes.size(), 2u);
}

TEST_F(StepWatchTest, other_policies_have_no_phases) {
  EXPECT_TRUE(StepWatch(graph_, planned("wavefront", 3)).phases().first().empty());
}

TEST(PassLog, a_retired_micro_batch_brings_the_figures_of_its_forward_pass_and_the_time_of_both) {
  PassLog log;
  const auto start = PassLog::Clock::now();
  MicroBatchPlan first;
  first.index = 1;
  MicroBatchPlan second;
  second.index = 2;
  log.began(start);
  log.finished({{"loss", 3, 1}}, {10, 0});
  log.keep(1);
  log.began(start + milliseconds(10));
  log.finished({{"loss", 4, 1}}, {20, 5});
  const MicroBatchDone together = log.retire(second, start + milliseconds(40));
  EXPECT_EQ(together.index, 2u);
  EXPECT_EQ(together.metrics[0].sum, 4);
  EXPECT_DOUBLE_EQ(together.age_ms, 30);
  log.began(start + milliseconds(40));
  log.finished({}, {0, 7});
  const MicroBatchDone apart = log.retire(first, start + milliseconds(50));
  EXPECT_EQ(apart.metrics[0].sum, 3);
  EXPECT_DOUBLE_EQ(apart.forward_ms, 10);
  EXPECT_DOUBLE_EQ(apart.backward_ms, 7);
  EXPECT_DOUBLE_EQ(apart.age_ms, 50);
}

}  // namespace
}  // namespace maestro
