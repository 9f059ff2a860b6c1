// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/run_rehearsal.hpp"

#include <gmock/gmock.h>

#include "actors/job/job_probes.hpp"
#include "actors/job/job_rehearsal.hpp"
#include "actors/run/coordinator/measured_steps.hpp"
#include "tests/plan/layout_jobs.hpp"

namespace maestro::testing {
namespace {

using ::testing::HasSubstr;

constexpr double teacher_ms = 2;  // per micro-batch
constexpr double forward_ms = 3;  // for student and plain
constexpr double backward_ms = 6;
constexpr double step_end_ms = 4;

/// A run with a separate device for each section and pass times set by the test.
class RunRehearsalTest : public ::testing::Test {
 protected:
  RunRehearsalTest()
      : plan_(plan_of(distillation_job,
                      {"teacher.devices=[\"cpu:0\"]", "student.devices=[\"cpu:1\"]", "plain.devices=[\"cpu:2\"]"})) {}

  void run(std::size_t steps) {
    const std::vector<TracedUnit> units = first_steps(plan_, steps);
    const std::vector<StepPlan> plans = plans_of(plan_, units, nullptr).value_or_throw();
    for (std::size_t at = 0; at < steps; ++at) {
      MeasuredStep& step = steps_.emplace_back();
      step.step = units[at].step;
      step.ms = 25;
      step.planning_ms = 0.1;
      step.samples = units[at].samples;
      step.passes.resize(plan_.graph.nodes().size());
      for (const MicroBatchPlan& batch : plans[at].micro_batches) {
        const GraphNode& node = plan_.graph.node(batch.section);
        if (node.role == Role::source) continue;
        std::vector<PassCost>& passes = step.passes[batch.section.value()];
        passes.resize(std::max<std::size_t>(passes.size(), batch.index + 1));
        passes[batch.index] = node.trained() ? PassCost{forward_ms, backward_ms} : PassCost{teacher_ms, 0};
      }
      for (const ReplicaPlacement& place : plan_.places) {
        const GraphNode& node = plan_.graph.node(place.section);
        LaneTimes& times = step.lanes[{place.section, place.replica}].times;
        times.busy_ms = node.trained() ? 18 : 8;
        if (node.trained())
          times.step_end_ms = step_end_ms + static_cast<double>(at % 2);  // varies like a shared device
        times.wait_ms["work"] = 25 - times.busy_ms - times.step_end_ms;
      }
    }
  }
  [[nodiscard]] std::string problem() const { return rehearse_run(plan_, steps_).error().message; }

  ResolvedJob plan_;
  std::deque<MeasuredStep> steps_;
};

TEST_F(RunRehearsalTest, a_period_has_the_passes_and_the_step_end_of_the_section_that_works_longest) {  // UR-1
  run(16);
  const RunRehearsal found = rehearse_run(plan_, steps_).value_or_throw();
  const double work_ms = 2 * (forward_ms + backward_ms) + step_end_ms;  // two micro-batches with four samples each
  EXPECT_EQ(found.steps, 16 - 2 - static_cast<std::size_t>(plan_.train.ahead) - 1);
  EXPECT_GE(found.step_ms, work_ms);
  EXPECT_LT(found.step_ms, work_ms + 1) << "hops alone come on top";
  EXPECT_EQ(found.measured_step_ms, 25);
  const RehearsedUse& student = found.sections.at("student");
  EXPECT_NEAR(student.passes, 18 / found.step_ms, 0.02);
  EXPECT_NEAR(student.step_ends, step_end_ms / found.step_ms, 0.02);
  EXPECT_NEAR(student.measured_passes, 18.0 / 25, 1e-9);
  EXPECT_NEAR(student.measured_step_ends, (step_end_ms + 0.5) / 25, 0.01);
  EXPECT_FALSE(found.sections.contains("corpus"));
}

TEST_F(RunRehearsalTest, both_periods_are_of_the_same_steps) {  // UR-2
  run(16);
  const double before = rehearse_run(plan_, steps_).value_or_throw().measured_step_ms;
  for (const std::size_t left_out : {0, 1, 13, 14, 15}) steps_[left_out].ms = 1000;
  EXPECT_EQ(rehearse_run(plan_, steps_).value_or_throw().measured_step_ms, before);
  for (std::size_t at = 2; at < 13; ++at) steps_[at].ms = 40;
  EXPECT_EQ(rehearse_run(plan_, steps_).value_or_throw().measured_step_ms, 40);
}

TEST_F(RunRehearsalTest, an_exchange_takes_as_long_as_the_replica_waits_that_comes_last) {
  plan_ = plan_of(distillation_job, {"teacher.devices=[\"cpu:0\"]", "student.replicas=2", "plain.devices=[\"cpu:3\"]",
                                     "student.devices=[\"cpu:1\", \"cpu:2\"]", "student.micro_batch=2"});
  run(16);
  const double before = rehearse_run(plan_, steps_).value_or_throw().step_ms;
  const SectionId student = *plan_.graph.find("student");
  for (MeasuredStep& step : steps_) {
    step.lanes.at({student, ReplicaIndex(0)}).times.wait_ms["reduction"] = 11;
    step.lanes.at({student, ReplicaIndex(1)}).times.wait_ms["reduction"] = 7;
  }
  EXPECT_NEAR(rehearse_run(plan_, steps_).value_or_throw().step_ms, before + 7, 0.5);
}

TEST_F(RunRehearsalTest, a_run_that_cannot_be_rehearsed_has_a_reason) {
  EXPECT_THAT(problem(), HasSubstr("7 steps or more, not 0"));
  run(6);
  EXPECT_THAT(problem(), HasSubstr("7 steps or more, not 6"));
  steps_.clear();
  run(16);
  steps_[5].passes[plan_.graph.find("student")->value()].pop_back();
  EXPECT_THAT(problem(), HasSubstr("step 6 had different micro-batches"));
  steps_.clear();
  run(16);
  steps_[3].planning_ms = 6000;
  EXPECT_THAT(problem(), HasSubstr("planning its last 16 steps anew would take 600"));
}

}  // namespace
}  // namespace maestro::testing
