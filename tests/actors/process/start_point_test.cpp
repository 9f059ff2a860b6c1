// SPDX-License-Identifier: Apache-2.0
#include "actors/process/start_point.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/checkpoint_archive.hpp"
#include "runtime/job/job_document.hpp"
#include "tests/checkpoint/section_fixture.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Manifest made() {
  Manifest manifest;
  manifest.data = {
      {"content", "a"}, {"data.sequence", "32"}, {"training samples", "480"}, {"weights of section 'teacher'", "w"}};
  manifest.settings = {{"data.path", "\"a.txt\""},
                       {"student.lr", "0.001"},
                       {"teacher.weights", "\"t\""},
                       {"train.out", "\"out\""},
                       {"train.steps", "9"}};
  return manifest;
}

std::vector<std::string> compare(const Manifest& stored, const Manifest& now, bool new_data = false) {
  return compare_origins("runs/x/checkpoints/step-00000009", stored, now, new_data);
}

std::string refusal(const Manifest& now) {
  try {
    (void)compare(made(), now);
  } catch (const JobError& error) {
    EXPECT_THAT(std::string(error.what()), AllOf(HasSubstr("step-00000009"), HasSubstr("--new-data"), IsOneLine()));
    return error.what();
  }
  return "accepted";
}

TEST(ResumedRun, of_the_same_job_and_data_has_nothing_to_tell) {  // BG-1
  EXPECT_THAT(compare(made(), made()), IsEmpty());
  Manifest moved = made();
  moved.settings["data.path"] = "\"b.txt\"";
  moved.settings["teacher.weights"] = "\"copy of t\"";
  moved.settings["train.out"] = "\"more\"";
  EXPECT_THAT(compare(made(), moved), IsEmpty()) << "places do not count: contents are compared";
}

TEST(ResumedRun, with_other_data_is_refused_by_name_and_values) {  // BG-1
  Manifest now = made();
  now.data["data.sequence"] = "64";
  now.data["training samples"] = "240";
  EXPECT_THAT(refusal(now), AllOf(HasSubstr("(data.sequence = 64, was 32; training samples = 240, was 480)"),
                                  Not(HasSubstr("content"))));
  now = made();
  now.data["content"] = "b";
  now.data["weights of section 'teacher'"] = "v";
  EXPECT_THAT(refusal(now), HasSubstr("(content differs; weights of section 'teacher' differ)"));
}

TEST(ResumedRun, takes_other_data_when_told_to_with_one_note) {
  Manifest now = made();
  now.data["content"] = "b";
  EXPECT_THAT(compare(made(), now, true), ElementsAre("other data than before: content differs"));
  EXPECT_THAT(compare(made(), made(), true), IsEmpty());
}

TEST(ResumedRun, is_compared_by_what_both_versions_record) {
  Manifest newer = made();
  newer.data["data.template"] = "chat";
  EXPECT_THAT(compare(made(), newer), IsEmpty());
  EXPECT_THAT(compare(newer, made()), IsEmpty());
}

TEST(ResumedRun, notes_each_changed_setting_and_goes_on) {
  Manifest now = made();
  now.settings["student.lr"] = "0.03";
  now.settings.erase("train.steps");
  now.settings["student.schedule"] = "\"constant\"";
  EXPECT_THAT(compare(made(), now), ElementsAre("student.lr = 0.03, was 0.001", "train.steps is not set, was 9",
                                                "student.schedule = \"constant\", was not set"));
}

TEST(ResumedRun, notes_weights_that_are_others_where_their_content_is_not_compared) {
  Manifest stored = made(), now = made();
  stored.settings["student.weights"] = "\"a\"";
  now.settings["student.weights"] = "\"b\"";
  EXPECT_THAT(compare(stored, now),
              ElementsAre("student.weights = \"b\", was \"a\"; its values are not read, as the section continues "
                          "from the checkpoint"));
  stored.settings.erase("student.weights");
  EXPECT_THAT(compare(stored, now),
              ElementsAre(HasSubstr("student.weights = \"b\", was not set; its values are not read")));
  now.settings["student.weights"] = "\"runs/x/checkpoints/step-00000009/student\"";
  EXPECT_THAT(compare(stored, now), IsEmpty()) << "named by the program, where the folder has gone";
  now = stored = made();
  now.settings["teacher.weights"] = "\"random\"";
  now.data.erase("weights of section 'teacher'");
  EXPECT_THAT(compare(stored, now), ElementsAre("teacher.weights = \"random\", was \"t\""));
}

TEST(ResumedRun, begins_behind_its_checkpoint_with_the_same_seed_and_batch) {
  const TempFolder folder;
  const CheckpointStore store(folder.path());
  ASSERT_TRUE(write_checkpoint(store, 9, 9 * 4).ok());  // 4 samples a step
  ResolvedJob plan;
  plan.options.resume = store.latest().value_or_throw();
  plan.train.seed = 0;
  const auto refusal_of = [&](std::int64_t batch, std::int64_t seed) -> std::string {
    plan.train.global_batch = batch;
    plan.train.seed = seed;
    try {
      EXPECT_EQ(find_start_point(plan, plan.options.resume).first_step, 10u);
    } catch (const JobError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal_of(4, 0), "accepted");
  for (const std::int64_t batch : {3, 5}) EXPECT_THAT(refusal_of(batch, 0), HasSubstr("repeat samples: use 4"));
  EXPECT_THAT(refusal_of(4, 7), HasSubstr("made with train.seed = 0, the job has 7"));
}

TEST(ResumedRun, of_fewer_steps_than_are_done_is_refused) {
  const TempFolder folder;
  const CheckpointStore store(folder.path());
  ASSERT_TRUE(write_checkpoint(store, 9, 9 * 4).ok());
  ResolvedJob plan;
  plan.options.resume = store.latest().value_or_throw();
  plan.train.seed = 0;
  plan.train.global_batch = 4;
  plan.train.steps = 9;
  EXPECT_EQ(find_start_point(plan, plan.options.resume).first_step, 10u);
  plan.train.steps = 8;
  const auto refusal_of = [&]() -> std::string {
    try {
      (void)find_start_point(plan, plan.options.resume);
    } catch (const JobError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal_of(),
              HasSubstr("step-00000009 is of step 9, and train.steps = 8; resume with more steps, or from "
                        "an earlier checkpoint"));
  plan.train.epochs = 0.5;
  EXPECT_THAT(refusal_of(), HasSubstr("and train.epochs = 0.5 makes 8 steps; resume with more epochs, or"));
}

TEST(ResumedRun, begins_in_the_stage_after_its_step_and_needs_the_same_stages) {  // TS-2
  const TempFolder folder;
  const CheckpointStore store(folder.path());
  ASSERT_TRUE(write_checkpoint(store, 9, 9 * 4).ok());
  const auto in_stage = [&](std::uint64_t stage) {
    return branch_checkpoint(folder.path() / "step-00000009", store,
                             [&](Manifest& manifest) { manifest.stage = stage; })
        .value_or_throw();
  };
  const auto stages_of = [](const std::string& first) {
    const std::string second = "[[stages]]\nsteps = 5\ntrain = [\"a\", \"b\"]\n";
    const std::string text = "[[stages]]\nsteps = " + first + "\ntrain = [\"a\"]\n" + second;
    return TrainingStages::read(JobDocument::parse(text, "job.toml").root());
  };
  ResolvedJob plan;
  plan.train.seed = 0;
  plan.train.global_batch = 4;
  const auto refusal_of = [&](const TrainingStages& stages, const std::filesystem::path& resume) -> std::string {
    plan.stages = stages;
    plan.stage = stages.span(stage_of_start(stages, resume));
    plan.train.steps = stages.given() ? plan.stage.end : 20;
    try {
      const StartPoint start = find_start_point(plan, resume);
      return start.begins_stage(plan) ? "begins a stage" : "goes on";
    } catch (const JobError& error) {
      return error.what();
    }
  };
  const auto first = in_stage(1);
  EXPECT_EQ(refusal_of(stages_of("9"), first), "begins a stage");
  EXPECT_EQ(plan.stage.number, 2);
  EXPECT_EQ(refusal_of(stages_of("11"), first), "goes on");
  EXPECT_EQ(plan.stage.number, 1);
  EXPECT_THAT(refusal_of(stages_of("8"), first), HasSubstr("is of step 9 in stage 1 of its run, which is in stage 2"));
  EXPECT_THAT(refusal_of(TrainingStages(), first), HasSubstr("which is in no stage here"));
  EXPECT_EQ(refusal_of(stages_of("8"), in_stage(2)), "goes on");
  EXPECT_THAT(refusal_of(stages_of("2"), in_stage(2)), HasSubstr("the job's stages have 7 steps; lengthen the last"));
}

TEST(ResumedRun, goes_on_with_the_cursor_of_its_checkpoint) {  // DC-2
  const TempFolder folder;
  const CheckpointStore store(folder.path());
  write_checkpoint(store, 9, 9 * 4).or_throw();
  DataCursor cursor;
  cursor.skip(5, 2, 4);
  const auto change = [&](std::uint64_t position) {
    auto branched = branch_checkpoint(folder.path() / "step-00000009", store, [&](Manifest& manifest) {
      manifest.cursor = cursor.segments();
      manifest.data_position = position;
    });
    return std::move(branched).value_or_throw().string();
  };
  ResolvedJob plan;
  plan.train.seed = 0;
  plan.train.global_batch = 4;
  plan.options.resume = change(11 * 4);
  EXPECT_EQ(find_start_point(plan, plan.options.resume).cursor.segments(), cursor.segments());
  plan.train.global_batch = 2;
  EXPECT_THROW((void)find_start_point(plan, plan.options.resume), JobError);
  plan.train.global_batch = 4;
  plan.options.resume = change(9 * 4);
  EXPECT_THROW((void)find_start_point(plan, plan.options.resume), JobError);
}

TEST(ResumedRun, of_an_older_version_has_one_note) {
  EXPECT_THAT(compare(Manifest(), made()), ElementsAre(HasSubstr("lacks a fingerprint of its data")));
}

}  // namespace
}  // namespace maestro
