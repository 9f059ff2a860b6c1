// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/spike_judge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace maestro {
namespace {

using Kind = SpikeFinding::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Feeds losses with norms, like the steps of a run.
class SpikeJudgeTest : public ::testing::Test {
 protected:
  void feed(double loss, double norm = 1.0) {
    for (const SpikeFinding& found : judge_.judge(++step_, loss, norm)) findings_.push_back(found);
  }
  void feed_usual(int steps) {
    for (int at = 0; at < steps; ++at) feed(2.0 + 0.02 * noise_(random_));
  }
  [[nodiscard]] std::vector<Kind> kinds() const {
    std::vector<Kind> found;
    for (const SpikeFinding& finding : findings_) found.push_back(finding.kind);
    return found;
  }

  SpikeJudge judge_{SpikeRules{}};
  std::mt19937 random_{7};
  std::normal_distribution<double> noise_;
  std::uint64_t step_ = 0;
  std::vector<SpikeFinding> findings_;
};

TEST_F(SpikeJudgeTest, a_bad_batch_begins_a_spike_that_ends) {  // GJ-2
  feed_usual(200);
  feed(5.0);
  feed(2.3);
  feed_usual(100);
  ASSERT_THAT(kinds(), ElementsAre(Kind::began, Kind::ended));
  EXPECT_EQ(findings_[0].step, 201U);
  EXPECT_NEAR(findings_[0].usual, 2.0, 0.02);
  EXPECT_EQ(findings_[1].began, 201U);
  EXPECT_EQ(findings_[1].step, 203U) << "2.3 is still above half of the threshold";
  EXPECT_EQ(findings_[1].highest, 5.0);
}

TEST_F(SpikeJudgeTest, a_spike_lasts_when_the_patience_is_over_and_is_reported_once) {  // GJ-3
  feed_usual(200);
  for (int at = 0; at < 300; ++at) feed(4.0 + 0.02 * noise_(random_));
  ASSERT_THAT(kinds(), ElementsAre(Kind::began, Kind::lasts));
  EXPECT_EQ(findings_[1].began, 201U);
  EXPECT_EQ(findings_[1].step, 201U + SpikeRules{}.patience);
  feed(6.0);
  EXPECT_THAT(kinds(), ElementsAre(Kind::began, Kind::lasts, Kind::began)) << "the new level is the usual one";
}

TEST_F(SpikeJudgeTest, a_rise_of_many_deviations_that_is_small_is_none) {  // GJ-2
  for (int at = 0; at < 200; ++at) feed(2.0 + 1e-4 * noise_(random_));
  feed(2.09);
  EXPECT_THAT(kinds(), IsEmpty());
  feed(2.11);
  EXPECT_THAT(kinds(), ElementsAre(Kind::began));
}

TEST_F(SpikeJudgeTest, nothing_is_judged_before_a_quarter_of_the_window) {  // GJ-1
  feed_usual(31);
  feed(9.0, 500.0);
  EXPECT_THAT(kinds(), IsEmpty());
  feed(9.0);
  EXPECT_THAT(kinds(), ElementsAre(Kind::began));
}

TEST_F(SpikeJudgeTest, losses_of_a_spike_are_not_usual_ones) {  // GJ-1
  feed_usual(64);
  for (int round = 0; round < 10; ++round) {
    for (int at = 0; at < 40; ++at) feed(5.0);
    feed(2.0);
  }
  ASSERT_EQ(findings_.size(), 20U);
  for (const SpikeFinding& found : findings_) EXPECT_NEAR(found.usual, 2.0, 0.05);
}

TEST_F(SpikeJudgeTest, values_that_are_not_finite_are_reported_once_in_a_row) {  // GJ-3
  feed(nan);
  feed(nan);
  ASSERT_THAT(kinds(), ElementsAre(Kind::not_finite)) << "also before there are usual values";
  EXPECT_EQ(findings_[0].began, 1U);
  feed_usual(40);
  feed(2.0, std::numeric_limits<double>::infinity());
  ASSERT_THAT(kinds(), ElementsAre(Kind::not_finite, Kind::not_finite));
  EXPECT_TRUE(std::isinf(findings_[1].value));
  feed_usual(40);
  feed(5.0);
  feed(nan);
  ASSERT_THAT(kinds(), ElementsAre(Kind::not_finite, Kind::not_finite, Kind::began, Kind::not_finite));
  EXPECT_EQ(findings_[3].began, findings_[2].step) << "the spike that ends so";
}

TEST_F(SpikeJudgeTest, the_first_of_a_row_of_huge_norms_is_reported) {
  feed_usual(100);
  feed(2.0, 10.5);
  feed(2.0, 30.0);
  feed(2.0, 1.0);
  feed(2.0, 9.5);
  feed(2.0, 11.0);
  ASSERT_THAT(kinds(), ElementsAre(Kind::huge_norm, Kind::huge_norm));
  EXPECT_EQ(findings_[0].step, 101U);
  EXPECT_EQ(findings_[1].step, 105U);
}

TEST_F(SpikeJudgeTest, a_norm_that_is_not_clipped_is_not_huge) {
  SpikeRules rules;
  rules.least_huge = 1;
  SpikeJudge judge(rules);
  std::vector<SpikeFinding> found;
  for (std::uint64_t step = 1; step <= 100; ++step) {
    for (const SpikeFinding& each : judge.judge(step, 2.0, 0.01)) found.push_back(each);
  }
  EXPECT_TRUE(judge.judge(101, 2.0, 0.9).empty()) << "90 times the median, and below the norm of clipping";
  EXPECT_EQ(judge.judge(102, 2.0, 1.1).size(), 1U);
  EXPECT_TRUE(found.empty());
}

/// Training curves: a loss that falls by a power of the step, with batch noise, and norms that fall and vary by
/// factors.
TEST_F(SpikeJudgeTest, fifteen_clean_curves_have_no_finding) {
  for (unsigned seed = 0; seed < 15; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> scatter;
    SpikeJudge judge{SpikeRules{}};
    const double scale = 0.01 + 0.01 * seed;
    for (std::uint64_t step = 1; step <= 3000; ++step) {
      const double fall = 4.0 * std::pow(static_cast<double>(step), -0.3) + 1.5;
      const double norm = (0.5 + fall) * std::exp(0.3 * scatter(random));
      const auto found = judge.judge(step, fall + scale * scatter(random), norm);
      EXPECT_THAT(found, IsEmpty()) << "seed " << seed << ", step " << step << ", value " << found[0].value;
    }
  }
}

}  // namespace
}  // namespace maestro
