// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/collective_times.hpp"

#include <gmock/gmock.h>

#include "actors/job/job_probes.hpp"
#include "tests/plan/layout_jobs.hpp"

namespace maestro::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobTimes one_ms() {
  JobTimes times;
  times.pass = [](const MicroBatchPlan&) { return PassCost{1, 1}; };
  times.action = [](SectionId, StepAction) { return 1.0; };
  return times;
}

/// Returns the milliseconds of calls that are collectives of two ranks.
double assumed_ms(const std::vector<ObservedCall>& calls) {
  double sum = 0;
  for (const ObservedCall& observed : calls) {
    const OperatorCall& call = observed.call;
    if (call.op != "all_reduce" && call.op != "all_gather" && call.op != "reduce_scatter") continue;
    const double bytes = call.op == "all_reduce" ? 2 * call.bytes : call.bytes;
    sum += assumed_link.latency_ms + bytes / 2 / assumed_link.bytes_per_ms;
  }
  return sum;
}

TEST(CollectiveTimes, passes_take_those_of_a_dry_pass_more) {
  const ResolvedJob traced = plan_of(distillation_job);
  const ResolvedJob plan = plan_of(distillation_job, {"student.tensor=2"});
  const CollectiveTimes collectives(traced, plan);
  EXPECT_THAT(collectives.sections(), ElementsAre("student"));
  const JobTimes times = collectives.added_to(one_ms());
  const SectionId student = *plan.graph.find("student");
  const MicroBatchPlan batch = batches_of(plan, student, first_steps(plan, 1).front().samples).front();
  PassProbe probe(probed_section(plan, student), LayoutRank(0), ProbeSite());
  const ObservedPasses passes = probe.pass(batch);
  EXPECT_GT(assumed_ms(passes.forward), 0);
  EXPECT_GT(assumed_ms(passes.backward), 0);
  const PassCost cost = times.pass(batch);
  EXPECT_NEAR(cost.forward, 1 + assumed_ms(passes.forward), 1e-9);
  EXPECT_NEAR(cost.backward, 1 + assumed_ms(passes.backward), 1e-9);
  MicroBatchPlan validation = batch;
  validation.pass = Pass::evaluate;
  EXPECT_EQ(times.pass(validation).backward, 1);
  EXPECT_GT(times.action(student, StepAction::add_ranks), 1);
  EXPECT_EQ(times.action(student, StepAction::step), 1);
  MicroBatchPlan other = batch;
  other.section = *plan.graph.find("teacher");
  EXPECT_EQ(times.pass(other).forward, 1);
}

TEST(CollectiveTimes, ranks_that_were_traced_have_theirs_and_emulated_devices_none) {
  const ResolvedJob single = plan_of(distillation_job);
  const ResolvedJob ranks = plan_of(distillation_job, {"student.tensor=2"});
  const ResolvedJob emulated = plan_of(distillation_job, {"student.tensor=2", "student.devices=[\"emulated\"]"});
  EXPECT_THAT(CollectiveTimes(ranks, ranks).sections(), IsEmpty());
  EXPECT_THAT(CollectiveTimes(ranks, single).sections(), IsEmpty());
  EXPECT_THAT(CollectiveTimes(single, emulated).sections(), IsEmpty());
  EXPECT_EQ(CollectiveTimes(ranks, ranks).added_to(one_ms()).pass(MicroBatchPlan()).forward, 1);
}

}  // namespace
}  // namespace maestro::testing
