// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/run_record.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace maestro {
namespace {

TEST(MetricTotals, figures_do_not_depend_on_the_order_in_which_micro_batches_report) {  // RC-1
  // Magnitudes differ so much that another order of addition would round to another sum.
  struct Part {
    std::uint32_t index;
    double sum;
  };
  std::vector<Part> parts;
  std::mt19937_64 random(11);
  for (std::uint32_t index = 0; index < 20; ++index) {
    parts.push_back(
        {index, std::ldexp(1.0 + static_cast<double>(random() % 1000) / 999, static_cast<int>(index * 5 % 60))});
  }
  const auto mean = [&] {
    MetricTotals totals;
    for (const Part& part : parts) totals.add(part.index, "loss", part.sum, 3);
    return totals.means().at("loss");
  };
  const double first = mean();
  double other_order = 0;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) other_order += part->sum;
  ASSERT_NE(other_order / 60, first) << "the parts must be such that order matters";
  for (int turn = 0; turn < 20; ++turn) {
    std::shuffle(parts.begin(), parts.end(), random);
    EXPECT_EQ(mean(), first);
  }
}

TEST(RunRecord, that_goes_back_forgets_the_steps_that_are_done_again) {
  RunRecord record;
  for (std::uint64_t step = 1; step <= 5; ++step) {
    record.steps.push_back({"student", StepId(step), {{"loss", 9.0 - static_cast<double>(step)}}});
    record.scheduling.emplace_back().step = StepId(step);
    record.counts[step] = {.read = 4, .trained = step < 5 ? 4U : 1U, .tokens = 10};
  }
  for (const std::uint64_t step : {2, 4}) {
    record.validations.push_back({"student", StepId(step), {{"loss", static_cast<double>(step)}}});
    record.validation["student"] = record.validations.kept().back().metrics;
  }
  record.last_step = 4;
  record.train_seconds = 7;
  EXPECT_EQ(record.totals().read, 20U);
  EXPECT_EQ(record.totals().trained, 17U);
  EXPECT_EQ(record.totals().tokens, 40U) << "step 5 is not finished";
  record.go_back(3);
  EXPECT_EQ(record.steps.kept().back().step, StepId(3));
  EXPECT_EQ(record.scheduling.kept().size(), 3U);
  ASSERT_EQ(record.validations.kept().size(), 1U);
  EXPECT_EQ(record.validation.at("student").at("loss"), 2);
  EXPECT_EQ(record.totals().read, 12U);
  EXPECT_EQ(record.totals().trained, 12U);
  EXPECT_EQ(record.totals().tokens, 30U);
  EXPECT_EQ(record.last_step, 3U);
  EXPECT_EQ(record.train_seconds, 7) << "the time has passed";
  record.go_back(0);
  EXPECT_TRUE(record.steps.kept().empty() && record.validation.empty() && record.counts.held() == 0);
}

TEST(RunRecord, keeps_what_a_section_that_was_ahead_has_done) {
  RunRecord record;
  for (std::uint64_t step = 1; step <= 5; ++step) {
    for (const char* section : {"plain", "student"}) record.steps.push_back({section, StepId(step), {}});
    record.counts[step] = {.read = 4, .trained = 4, .tokens = 10};
  }
  record.last_step = 3;
  RunRecord other = record;
  record.go_back(3, {{"plain", 4}}, "plain");
  EXPECT_EQ(record.steps.kept().size(), 6U);
  ASSERT_EQ(record.unfinished.at(4).size(), 1U) << "step 4 is finished when the student has done it again";
  EXPECT_EQ(record.unfinished.at(4).front().section, "plain");
  EXPECT_EQ(record.totals().trained, 16U) << "those of step 4 are not trained again";
  EXPECT_EQ(record.totals().read, 12U) << "but read again";
  other.go_back(3, {{"plain", 4}}, "student");
  EXPECT_EQ(other.totals().trained, 12U);
}

TEST(RunRecord, of_a_long_run_keeps_the_last_rows) {
  RunRecord record;
  record.keep_recent_rows();
  for (std::uint64_t step = 1; step <= 10'000; ++step) {
    record.steps.push_back({"student", StepId(step), {}});
    record.scheduling.emplace_back().step = StepId(step);
  }
  EXPECT_EQ(record.steps.next(), 10'000U);
  EXPECT_EQ(record.steps.kept().size(), 4096U);
  EXPECT_EQ(record.steps.first(), 10'000U - 4096U);
  EXPECT_EQ(record.steps.kept().back().step, StepId(10'000));
  record.go_back(9'000);
  EXPECT_EQ(record.steps.kept().back().step, StepId(9'000));
  EXPECT_EQ(record.steps.next(), 10'000U) << "numbers are used once";
  EXPECT_EQ(record.scheduling.kept().back().step, StepId(9'000));
}

/// Counts 4 samples with as many tokens as the step's number.
void count(SampleCounts& counts, std::uint64_t step) {
  counts[step] = {.read = 4, .trained = 4, .tokens = step};
}

TEST(SampleCounts, that_are_summed_up_stay_the_same) {  // SX-1
  SampleCounts counts;
  for (std::uint64_t step = 1; step <= 10'000; ++step) {
    count(counts, step);
    counts.settle(step);
    if (step % 1000 == 0) counts.mark(step);
  }
  EXPECT_LE(counts.held(), 100U);
  EXPECT_EQ(counts.totals(10'000).read, 40'000U);
  EXPECT_EQ(counts.totals(10'000).tokens, 10'000U * 10'001 / 2);
  EXPECT_EQ(counts.totals(9'999).tokens, 10'000U * 9'999 / 2) << "step 10,000 is not finished";
  counts.go_back(7000, 7000);
  EXPECT_EQ(counts.totals(7000).trained, 28'000U);
  EXPECT_EQ(counts.totals(7000).tokens, 7000U * 7001 / 2);
  counts.go_back(0, 0);
  EXPECT_EQ(counts.totals(0).read, 0U);
}

TEST(SampleCounts, keep_what_was_trained_ahead_also_at_a_second_return) {  // SX-1
  SampleCounts counts;
  for (std::uint64_t step = 1; step <= 10; ++step) count(counts, step);
  counts.mark(8);
  for (int loss = 0; loss < 2; ++loss) {
    counts.go_back(8, 9);
    EXPECT_EQ(counts.totals(8).trained, 36U) << "of step 9, too";
    EXPECT_EQ(counts.totals(8).read, 32U);
    for (std::uint64_t step = 10; step <= 500; ++step) {
      count(counts, step);
      counts.settle(step);
    }
  }
}

TEST(Recovery, is_told_with_its_cost) {
  Recovery recovery;
  EXPECT_EQ(text_of(recovery), "the run ended before its next pass");
  recovery.after_step = 8;
  recovery.repeated = 3;
  recovery.seconds = 1.26;
  EXPECT_EQ(text_of(recovery), "went on after step 8 within 1.3 s; 3 steps were done again");
  recovery.repeated = 1;
  EXPECT_EQ(text_of(recovery), "went on after step 8 within 1.3 s; 1 step was done again");
}

TEST(DistinctSamples, a_sample_counts_once_however_often_it_is_read) {
  DistinctSamples distinct;
  for (const std::uint64_t sample : {7, 0, 7, 1000, 0, 999}) distinct.insert(SampleId(sample));
  EXPECT_EQ(distinct.size(), 4U);
}

TEST(MetricTotals, means_are_weighted_and_those_without_weight_are_left_out) {
  MetricTotals totals;
  totals.add(0, "loss", 6, 2);
  totals.add(1, "loss", 2, 2);
  totals.add(0, "kl", 0, 0);
  const std::map<std::string, double> wanted{{"loss", 2.0}};
  EXPECT_EQ(totals.means(), wanted);
}

}  // namespace
}  // namespace maestro
