// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/plan_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/job_document.hpp"
#include "tests/job/job_error.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

PlanConfig read(const std::string& lines) {
  const auto job = JobDocument::parse("[plan]\n" + lines, "job.toml");
  PlanConfig read = read_plan(job.root().table("plan"));
  job.finish();
  return read;
}
std::string error_of(const std::string& lines) {
  return job_error_of([&] { (void)read(lines); });
}

TEST(PlanReader, reads_every_key_of_the_table) {
  const PlanConfig plan = read(R"(predicted_step_ms = 102.5
objective = "extra"
keep = ["llm"]
stall = 0.02
headroom = 0.9
predicted_passes_ms = {llm = 80, vision = 12.5}
)");
  EXPECT_EQ(plan.predicted_step_ms, 102.5);
  EXPECT_EQ(plan.objective, PlanObjective::extra);
  EXPECT_THAT(plan.keep, ElementsAre("llm"));
  EXPECT_EQ(plan.stall, 0.02);
  EXPECT_EQ(plan.headroom, 0.9);
  EXPECT_THAT(plan.predicted_passes_ms, ElementsAre(Pair("llm", 80), Pair("vision", 12.5)));
  EXPECT_EQ(read("").predicted_step_ms, 0) << "an absent table predicts nothing";
}

TEST(PlanReader, refuses_unknown_keys_by_the_nearest_and_keys_without_a_meaning) {
  EXPECT_THAT(error_of("predicted_step = 3\n"), HasSubstr("did you mean 'predicted_step_ms'?"));
  EXPECT_THAT(error_of("objective = \"tme\"\n"), HasSubstr("plan.objective"));
  EXPECT_THAT(error_of("predicted_step_ms = 0\n"), HasSubstr("plan.predicted_step_ms: must be greater than 0"));
  EXPECT_THAT(error_of("keep = [\"llm\"]\n"), HasSubstr("plan.keep: applies only with objective = \"extra\""));
  EXPECT_THAT(error_of("stall = 0.1\n"), HasSubstr("plan.stall: applies only"));
  EXPECT_THAT(error_of("objective = \"extra\"\n"), HasSubstr("needs `keep`"));
  EXPECT_THAT(error_of("predicted_passes_ms = {llm = 1}\n"), HasSubstr("applies only with predicted_step_ms"));
  EXPECT_THAT(error_of("predicted_step_ms = 1\npredicted_passes_ms = {llm = -1}\n"),
              HasSubstr("plan.predicted_passes_ms.llm: must be at least 0"));
  EXPECT_THAT(error_of("predicted_step_ms = 1\npredicted_passes_ms = {llm = \"fast\"}\n"),
              HasSubstr("plan.predicted_passes_ms.llm"));
}

}  // namespace
}  // namespace maestro
