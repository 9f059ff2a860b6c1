// SPDX-License-Identifier: Apache-2.0
#include "actors/job/repeated_plans.hpp"

#include <gmock/gmock.h>

#include "actors/job/job_probes.hpp"
#include "tests/plan/layout_jobs.hpp"

namespace maestro::testing {
namespace {

constexpr std::size_t steps = 8;

/// A job with several replicas, so that each receiver numbers its micro-batches itself.
class RepeatedPlansTest : public ::testing::Test {
 protected:
  explicit RepeatedPlansTest(const std::string& job = distillation_job) {
    plan_ = plan_on_emulated(job,
                             {"teacher.replicas=2", "student.replicas=2", "student.micro_batch=2", "plain.pipeline=2"});
    units_ = first_steps(plan_, steps);
    times_.pass = [](const MicroBatchPlan& batch) {
      return PassCost{static_cast<double>(batch.samples.size()), static_cast<double>(2 * batch.samples.size())};
    };
    times_.action = [](SectionId, StepAction) { return 0.5; };
    times_.write = [](SectionId, SectionId, std::int64_t rows) { return 0.01 * static_cast<double>(rows); };
    times_.apart = true;
  }
  [[nodiscard]] RepeatedPlans repeated(std::size_t most_apart = 4000) const {
    return repeated_plans_of(plan_, units_, times_, most_apart).value_or_throw();
  }
  /// Checks that the numbered plans have the micro-batches of plans_of(), with their sequences.
  void expect_plans(const RepeatedPlans& plans) const {
    const std::vector<StepPlan> apart = plans_of(plan_, units_, nullptr).value_or_throw();
    StepNumbers numbers;
    for (std::size_t unit = 0; unit < steps; ++unit) {
      const StepPlan made = numbers.numbered(plans.planned[plans.of_unit[unit]], units_[unit].step);
      EXPECT_EQ(made.step, apart[unit].step);
      ASSERT_EQ(made.micro_batches.size(), apart[unit].micro_batches.size());
      for (std::size_t at = 0; at < made.micro_batches.size(); ++at) {
        expect_equal(made.micro_batches[at], apart[unit].micro_batches[at]);
      }
    }
  }
  static void expect_equal(const MicroBatchPlan& one, const MicroBatchPlan& other) {
    EXPECT_EQ(
        std::tuple(one.section, one.replica, one.index, one.step, one.backward_order, one.backward_after),
        std::tuple(other.section, other.replica, other.index, other.step, other.backward_order, other.backward_after));
    EXPECT_EQ(one.rows(), other.rows());
    ASSERT_EQ(one.arrivals.size(), other.arrivals.size());
    for (std::size_t at = 0; at < one.arrivals.size(); ++at) {
      EXPECT_EQ(one.arrivals[at].channel, other.arrivals[at].channel);
      EXPECT_EQ(one.arrivals[at].sequence, other.arrivals[at].sequence);
      EXPECT_EQ(one.arrivals[at].pieces.size(), other.arrivals[at].pieces.size());
    }
    ASSERT_EQ(one.pieces.size(), other.pieces.size());
    for (std::size_t at = 0; at < one.pieces.size(); ++at) {
      EXPECT_EQ(std::tuple(one.pieces[at].receiver, one.pieces[at].sequence, one.pieces[at].rows),
                std::tuple(other.pieces[at].receiver, other.pieces[at].sequence, other.pieces[at].rows));
    }
  }
  ResolvedJob plan_;
  std::vector<TracedUnit> units_;
  JobTimes times_;
};

TEST_F(RepeatedPlansTest, a_step_of_equal_sizes_is_planned_once_and_numbered_as_if_each_were_planned) {  // QN-1
  const RepeatedPlans plans = repeated();
  EXPECT_EQ(plans.planned.size(), 1U);
  expect_plans(plans);
}

TEST_F(RepeatedPlansTest, the_rehearsal_ends_with_the_time_and_the_shares_of_a_whole_one) {
  const SteadyRehearsal whole = rehearse_steps(plan_, units_, times_).value_or_throw();
  const SteadyRehearsal shorter = rehearse_repeated(plan_, units_, repeated(), times_).value_or_throw();
  EXPECT_EQ(shorter.time.period_ms(), whole.time.period_ms());
  const auto shares = section_shares(shorter.rehearsed, plan_.graph, shorter.time);
  for (const auto& [section, of] : section_shares(whole.rehearsed, plan_.graph, whole.time)) {
    EXPECT_EQ(shares.at(section).passes, of.passes) << section;
    EXPECT_EQ(shares.at(section).step_ends, of.step_ends) << section;
    EXPECT_EQ(shares.at(section).waits, of.waits) << section;
  }
  const auto end_of = [](const SteadyRehearsal& steady) {
    double end_ms = 0;
    for (const auto& [lane, intervals] : steady.rehearsed.lanes) end_ms = std::max(end_ms, intervals.back().end_ms);
    return end_ms;
  };
  EXPECT_LT(end_of(shorter), end_of(whole));
}

class PlansOfUnlikeSteps : public RepeatedPlansTest {
 protected:
  PlansOfUnlikeSteps() : RepeatedPlansTest(of_unlike_sizes(distillation_job)) {}
  static std::string of_unlike_sizes(std::string job) {
    const std::string sizes = "sequence = 12";
    return job.replace(job.find(sizes), sizes.size(), "lengths = [[4, 1], [8, 0.6], [12, 0.3]]");
  }
};

TEST_F(PlansOfUnlikeSteps, each_is_planned_but_two_of_many_lanes) {  // QN-1
  const RepeatedPlans plans = repeated();
  EXPECT_EQ(plans.planned.size(), steps);
  expect_plans(plans);
  const RepeatedPlans two = repeated(1);
  EXPECT_EQ(two.planned.size(), 2U);
  EXPECT_EQ(two.of_unit, (std::vector<std::size_t>{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_GT(rehearse_repeated(plan_, units_, two, times_).value_or_throw().time.period_ms(), 0);
}

}  // namespace
}  // namespace maestro::testing
