// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/training_stages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/job_document.hpp"
#include "tests/job/job_error.hpp"

namespace maestro {
namespace {

using testing::HasSubstr;

constexpr const char* two = R"(
[[stages]]
steps = 500
train = ["projector"]
lr = {projector = 1e-3}
[[stages]]
steps = 4000
train = ["projector", "llm"]
)";

TrainingStages stages_of(const std::string& text) {
  return TrainingStages::read(JobDocument::parse(text, "job.toml").root());
}
std::string refusal(const std::string& text) {
  return job_error_of([&] {
    const JobDocument document = JobDocument::parse(text, "job.toml");
    TrainingStages::read(document.root()).check({"vision", "projector", "llm"}, {"teacher"});
    document.root().finish();
  });
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(TrainingStages, follow_each_other_by_steps) {  // TS-2
  const TrainingStages stages = stages_of(two);
  EXPECT_TRUE(stages.given());
  EXPECT_EQ(stages.steps(), 4500);
  EXPECT_EQ(stages.span(0), (StageSpan{1, 2, 0, 500}));
  EXPECT_EQ(stages.span(1), (StageSpan{2, 2, 500, 4500}));
  EXPECT_TRUE(stages.span(1).last());
  const std::pair<std::uint64_t, std::size_t> next[] = {{0, 0}, {499, 0}, {500, 1}, {4499, 1}, {4500, 1}, {9000, 1}};
  for (const auto& [step, stage] : next) EXPECT_EQ(stages.after(step), stage) << step;
  const std::pair<std::uint64_t, std::uint64_t> did[] = {{1, 1}, {500, 1}, {501, 2}, {4500, 2}};
  for (const auto& [step, stage] : did) EXPECT_EQ(stages.that_did(step), stage) << step;
}

TEST(TrainingStages, have_sections_and_learning_rates) {
  const TrainingStages stages = stages_of(two);
  EXPECT_TRUE(stages.trains(0, "projector"));
  EXPECT_FALSE(stages.trains(0, "llm"));
  EXPECT_TRUE(stages.trains(1, "llm"));
  EXPECT_EQ(stages.lr(0, "projector"), 1e-3);
  EXPECT_EQ(stages.lr(1, "projector"), std::nullopt);
  EXPECT_EQ(stages.line(0), "stage 1 of 2: steps 1 to 500, trains projector (lr 0.001)");
  EXPECT_EQ(stages.line(1), "stage 2 of 2: steps 501 to 4500, trains projector, llm");
}

TEST(TrainingStages, of_a_job_without_them_are_none) {
  const TrainingStages stages = stages_of("name = \"a\"");
  EXPECT_FALSE(stages.given());
  EXPECT_EQ(stages.steps(), 0);
  EXPECT_EQ(stages.after(7), 0U);
  EXPECT_EQ(stages.that_did(7), 0U);
  EXPECT_FALSE(stages.span(0).given());
}

TEST(TrainingStages, that_cannot_be_done_are_refused_with_their_place) {  // TS-3
  EXPECT_EQ(refusal(two), "(no error)");
  EXPECT_THAT(refusal(replaced(two, "steps = 500\n", "")), HasSubstr("steps: is missing: a stage ends after"));
  EXPECT_THAT(refusal(replaced(two, "500", "0")), HasSubstr("job.toml:3: stages"));
  EXPECT_THAT(refusal(replaced(two, "[\"projector\"]", "[]")), HasSubstr("train: names no section"));
  EXPECT_THAT(refusal(replaced(two, "{projector", "{llm")), HasSubstr("llm: is not a section of this stage's train"));
  EXPECT_THAT(refusal(replaced(two, "[\"projector\", \"llm\"]", "[\"llm\"]")),
              HasSubstr("lacks \"projector\", which the stage before trains"));
  EXPECT_THAT(refusal(replaced(two, "\"llm\"]", "\"lmm\"]")),
              HasSubstr("train: \"lmm\" is not a section; the nearest is \"llm\""));
  EXPECT_THAT(
      refusal(replaced(two, "\"llm\"]", "\"teacher\"]")),
      HasSubstr("section \"teacher\" is always frozen in this app; these can be trained: vision, projector, llm"));
  EXPECT_THAT(refusal(replaced(two, "steps = 4000", "steps = 4000\nwarmup = 3")), HasSubstr("warmup"));
}

}  // namespace
}  // namespace maestro
