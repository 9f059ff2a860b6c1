// SPDX-License-Identifier: Apache-2.0
#include "actors/job/learning_rates.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A job with one trained section, and the settings of the checkpoint that it resumes.
class LearningRates : public ::testing::Test {
 protected:
  LearningRates() {
    GraphNode node;
    node.name = "student";
    plan_.graph.add(node);
    PlannedSection section;
    section.config.name = "student";
    plan_.sections.push_back(std::move(section));
    optimizer().lr = 1e-3;
    plan_.train.steps = 100;
    stored_.step = 50;
    stored_.settings = {{"train.steps", "50"}, {"student.lr", "0.001"}};
  }
  OptimizerConfig& optimizer() { return plan_.sections[0].config.optimizer; }

  ResolvedJob plan_;
  Manifest stored_;
};

TEST_F(LearningRates, a_warm_up_that_the_run_does_not_leave_has_a_note_with_the_highest_rate) {
  plan_.train.steps = 20;
  optimizer().warmup_steps = 50;
  optimizer().min_lr = 1e-4;
  EXPECT_THAT(schedule_notes(plan_),
              ElementsAre("student.warmup_steps = 50 in a run of 20 steps: the learning rate reaches 0.0004 at most, "
                          "0.4 of lr = 0.001, and never decays to min_lr = 1e-04"));
  optimizer().min_lr = 0;
  optimizer().schedule = LearningRateSchedule::constant;
  EXPECT_THAT(schedule_notes(plan_), ElementsAre(EndsWith("0.0004 at most, 0.4 of lr = 0.001")));
  optimizer().warmup_steps = 20;
  EXPECT_THAT(schedule_notes(plan_), ElementsAre(HasSubstr("reaches 0.001 at most, 1 of lr = 0.001")));
  optimizer().warmup_steps = 19;
  EXPECT_THAT(schedule_notes(plan_), IsEmpty());
  optimizer().warmup_steps = 50;
  plan_.sections[0].config.devices = {{DeviceId::Kind::emulated}};
  EXPECT_THAT(schedule_notes(plan_), IsEmpty()) << "nothing is trained";
}

TEST_F(LearningRates, a_decay_that_ends_before_the_run_has_a_note) {
  plan_.train.schedule_steps = 60;
  EXPECT_THAT(schedule_notes(plan_),
              ElementsAre("student: the learning rate is min_lr = 0 after step 60 of 100, by train.schedule_steps = "
                          "60: nothing is learned afterwards"));
  optimizer().min_lr = 1e-5;
  optimizer().warmup_steps = 70;  // the last step of the warm-up has the full rate, and so has the step after it
  EXPECT_THAT(schedule_notes(plan_), ElementsAre("student: the learning rate is min_lr = 1e-05 after step 71 of 100, "
                                                 "by train.schedule_steps = 60"));
  optimizer().schedule = LearningRateSchedule::constant;
  EXPECT_THAT(schedule_notes(plan_), ElementsAre("student.min_lr = 1e-05 is ignored: the schedule is constant"));
  optimizer().schedule = LearningRateSchedule::linear;
  plan_.train.schedule_steps = 100;
  EXPECT_THAT(schedule_notes(plan_), IsEmpty());
}

TEST_F(LearningRates, a_rate_that_jumps_with_more_steps_is_told_with_the_key_that_keeps_it) {
  EXPECT_THAT(rate_jumps(plan_, stored_),
              ElementsAre("student: the learning rate jumps from 9.87e-07 at step 50 to 0.0005 at step 51; "
                          "train.schedule_steps = 50 keeps the earlier schedule, which stays at min_lr = 0"));
  plan_.train.schedule_steps = 50;
  EXPECT_THAT(rate_jumps(plan_, stored_), IsEmpty());
  plan_.train.schedule_steps = 0;
  stored_.step = 25;
  EXPECT_THAT(rate_jumps(plan_, stored_),
              ElementsAre("student: the learning rate jumps from 0.000531 at step 25 to 0.000854 at step 26; "
                          "train.schedule_steps = 50 keeps the earlier schedule"));
}

TEST_F(LearningRates, a_rate_that_jumps_with_settings_of_the_section_is_told_without_a_key) {
  plan_.train.steps = 50;
  stored_.step = 10;
  optimizer().lr = 1e-2;
  EXPECT_THAT(rate_jumps(plan_, stored_), ElementsAre("student: the learning rate jumps from 0.000922 at step 10 to "
                                                      "0.00905 at step 11"));
  optimizer().lr = 1e-3;
  optimizer().warmup_steps = 40;
  EXPECT_THAT(rate_jumps(plan_, stored_), ElementsAre(HasSubstr("from 0.000922 at step 10 to 0.000275 at step 11")));
  optimizer().warmup_steps = 0;
  optimizer().schedule = LearningRateSchedule::constant;
  stored_.step = 40;
  EXPECT_THAT(rate_jumps(plan_, stored_), ElementsAre(HasSubstr("from 0.000115 at step 40 to 0.001 at step 41")));
  stored_.settings["student.min_lr"] = "0.0009";
  stored_.step = 30;
  EXPECT_THAT(rate_jumps(plan_, stored_), IsEmpty()) << "less than a tenth";
}

TEST_F(LearningRates, a_course_that_is_the_same_has_no_jump) {
  stored_.step = 3;
  stored_.settings["student.warmup_steps"] = "10";
  optimizer().warmup_steps = 10;
  EXPECT_THAT(rate_jumps(plan_, stored_), IsEmpty()) << "a warm-up rises, and its steps are the same";
  stored_.settings["train.steps"] = "99";
  stored_.step = 60;
  EXPECT_THAT(rate_jumps(plan_, stored_), IsEmpty());
  plan_.train.steps = 60;
  EXPECT_THAT(rate_jumps(plan_, stored_), IsEmpty()) << "no step is left";
}

TEST_F(LearningRates, epochs_count_the_samples_that_the_checkpoint_was_made_with) {
  stored_.settings = {{"train.epochs", "2"}, {"train.global_batch", "4"}, {"student.lr", "0.001"}};
  stored_.data["training samples"] = "100";
  EXPECT_THAT(rate_jumps(plan_, stored_), ElementsAre(HasSubstr("from 9.87e-07 at step 50 to 0.0005 at step 51; "
                                                                "train.schedule_steps = 50 keeps")));
  TrainConfig train;
  train.global_batch = 16;
  train.epochs = 1;
  EXPECT_EQ(steps_of_epochs(train, 17), 2);
  train.epochs = 0.001;
  EXPECT_EQ(steps_of_epochs(train, 17), 1);
  train.epochs = 1e9;
  EXPECT_THROW((void)steps_of_epochs(train, std::uint64_t{1} << 40), JobError);
}

TEST_F(LearningRates, settings_that_cannot_be_read_are_told_as_that) {
  stored_.settings["student.schedule"] = "\"wave\"";
  EXPECT_THAT(rate_jumps(plan_, stored_), ElementsAre(HasSubstr("the checkpoint's learning rates are unknown: ")));
  stored_.settings.clear();
  EXPECT_THAT(rate_jumps(plan_, stored_), IsEmpty()) << "of a version that kept none";
}

}  // namespace
}  // namespace maestro
