// SPDX-License-Identifier: Apache-2.0
#include "actors/live/run_metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/control/control_types.h"

namespace maestro {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

control::Status one_section() {
  control::Status status;
  control::SectionFigures& student = status.sections.emplace_back();
  student.name = "student";
  student.metrics = {{"loss", 2.5}, {"grad_norm", 0.5}, {"lr", 0.001}, {"ce", 1}};
  status.sections.emplace_back().name = "teacher";
  control::DeviceFigures& device = status.devices.emplace_back();
  device.process = 1;
  device.device = "cpu:0";
  device.busy = 0.875;
  return status;
}

GraphNode node_of(const char* name) {
  GraphNode node;
  node.name = name;
  node.ports.outputs = {Port{"out", DType::f32, 4}};
  node.ports.inputs = {Port{"in", DType::f32, 4}};
  return node;
}

TEST(RunMetrics, have_the_figures_of_the_run) {
  RunStatus run;
  run.state = RunState::running;
  run.last_step = 12;
  run.checkpoint = "out/checkpoints/step-00000008";
  run.recoveries = {"a", "b"};
  run.left_out = 3;
  StepFigures figures;
  const std::chrono::system_clock::time_point time{std::chrono::milliseconds(1700000000500)};
  figures.step_ended(StepId(12), 0.3, {8, 7, 256}, StepFigures::Clock::now(), time);
  SectionGraph graph;
  for (const char* name : {"teacher", "student"}) graph.add(node_of(name));
  const EdgeId edge = graph.connect("teacher", "out", "student", "in");
  const Lane lane(SectionId(1), ReplicaIndex(0));
  figures.lanes_ended({{lane, {{1500, 500, {{"teacher", 4000}}}, {}}}}, true);
  figures.lanes_ended(
      {{lane,
        {{250, 125, {{"teacher", 625}}}, {{Channel{edge, Direction::gradient}, 64}}, {{Channel{edge}, {30, 4}}}}}},
      true);
  figures.lanes_ended({{lane, {{125, 0, {{"norm", 250}}}, {{Channel{edge, Direction::gradient}, 6}}}}}, false);
  run.figures = figures.totals();
  run.steady_step = SteadyStep{150, 100, 20};
  control::Status status = one_section();
  status.sections.emplace_back();
  status.sections.back().name = "generator";
  status.sections.back().metrics = {{"generated_tokens", 96}, {"rollout_ms", 250}, {"staleness", 2}, {"version", 9}};
  const std::string text =
      metrics_text(status, run, graph, {"0.1.0", "avx2", {{"host", 1e6}, {"cuda:0", 5e8}}, 77, 1});
  for (const char* expected :
       {"maestro_step 12\n",
        "maestro_last_step_timestamp_seconds 1700000000.5\n",
        "maestro_loss{section=\"student\"} 2.5\n",
        "maestro_grad_norm{section=\"student\"} 0.5\n",
        "maestro_learning_rate{section=\"student\"} 0.001\n",
        "maestro_generated_tokens{section=\"generator\"} 96\n",
        "maestro_generated_staleness_steps{section=\"generator\"} 2\n",
        "maestro_rollout_seconds{section=\"generator\"} 0.25\n",
        "maestro_busy_ratio{section=\"student\",replica=\"0\"} 0.25\n",
        "maestro_device_busy_ratio{process=\"1\",device=\"cpu:0\"} 0.875\n",
        "maestro_step_time_over_bound 1.5\n",
        "maestro_busy_seconds_total{section=\"student\",replica=\"0\"} 1.875\n",
        "maestro_step_end_seconds_total{section=\"student\",replica=\"0\"} 0.625\n",
        "maestro_wait_seconds_total{section=\"student\",replica=\"0\",on=\"teacher\"} 4.625\n",
        "maestro_wait_seconds_total{section=\"student\",replica=\"0\",on=\"norm\"} 0.25\n",
        "maestro_transfer_bytes_total{edge=\"teacher.out -> student.in\",direction=\"gradient\"} 70\n",
        "maestro_transfer_seconds_total{edge=\"teacher.out -> student.in\",direction=\"value\"} 0.03\n",
        "maestro_samples_total 7\n",
        "maestro_tokens_total 256\n",
        "maestro_step_seconds_bucket{le=\"0.25\"} 0\n",
        "maestro_step_seconds_bucket{le=\"0.5\"} 1\n",
        "maestro_step_seconds_count 1\n",
        "maestro_step_seconds_sum 0.3\n",
        "maestro_checkpoint_last_step 8\n",
        "maestro_bad_samples_total 4\n",
        "maestro_recoveries_total 2\n",
        "maestro_run_state{state=\"running\"} 1\n",
        "maestro_run_state{state=\"paused\"} 0\n",
        "maestro_rma_bytes_total 77\n",
        "maestro_memory_bytes{device=\"host\"} 1000000\n",
        "maestro_memory_bytes{device=\"cuda:0\"} 500000000\n",
        "maestro_build_info{version=\"0.1.0\",instruction_set=\"avx2\"} 1\n"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + expected));
  }
}

TEST(RunMetrics, leave_out_what_is_not_there_yet) {
  const std::string text = metrics_text({}, {}, {}, {});
  for (const char* absent : {"maestro_loss", "maestro_last_step_timestamp_seconds", "maestro_busy_ratio",
                             "maestro_device_busy_ratio", "maestro_step_time_over_bound"}) {
    EXPECT_THAT(text, Not(HasSubstr(absent)));
  }
  EXPECT_THAT(text, HasSubstr("maestro_checkpoint_last_step 0\n"));
}

TEST(RunMetrics, name_the_step_of_a_checkpoint) {
  EXPECT_EQ(step_of_checkpoint("a/step-00000123"), 123u);
  EXPECT_EQ(step_of_checkpoint(""), 0u);
  EXPECT_EQ(step_of_checkpoint("a/step-x"), 0u);
}

}  // namespace
}  // namespace maestro
