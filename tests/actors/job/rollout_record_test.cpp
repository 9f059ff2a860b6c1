// SPDX-License-Identifier: Apache-2.0
#include "actors/job/rollout_record.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

RecordedRollout three_samples() {
  return {StepId(7),
          StepId(6),
          {{0, ~std::uint64_t{0}, true, {{'a', 'b'}, {'c', 'd', 0}, {-1.0F, -2.0F, -3.0F}}},
           {2, 5, false, {{'x'}, {'y'}, {-0.5F}}},
           {3, 6, false, {{'x'}, {'z'}, {-0.25F}}}}};
}

TEST(RolloutRecord, some_samples_of_the_last_step_are_shown_once) {
  RolloutRecordOptions options;
  options.show = 2;
  options.tokenizer = "bytes";
  RolloutRecord record(options);
  EXPECT_EQ(record.take_shown(), "");
  record.keep(three_samples());
  const std::string line = record.take_shown();
  EXPECT_TRUE(line.starts_with(R"({"step":7,)")) << line;  // as LN-2 of RunLog has it
  const auto shown = nlohmann::json::parse(line);
  EXPECT_EQ(shown["version"], 6);
  ASSERT_EQ(shown["samples"].size(), 2U);
  EXPECT_EQ(shown["samples"][0],
            nlohmann::json::parse(R"({"number": 0, "seed": "18446744073709551615", "finish": "stop",
      "tokens": 3, "log_probability": -2.0, "prompt_ids": [97, 98], "ids": [99, 100, 0], "prompt": "ab", "text": "cd"})"));
  EXPECT_EQ(shown["samples"][1]["finish"], "length");
  EXPECT_EQ(record.take_shown(), "");
}

TEST(RolloutRecord, samples_without_a_tokenizer_are_shown_as_numbers) {
  RolloutRecordOptions options;
  options.show = 1;
  RolloutRecord record(options);
  record.keep(three_samples());
  const auto shown = nlohmann::json::parse(record.take_shown())["samples"][0];
  EXPECT_EQ(shown["ids"], (std::vector<int>{'c', 'd', 0}));
  EXPECT_FALSE(shown.contains("text"));
}

TEST(RolloutRecord, samples_that_were_kept_are_read_back) {
  const TempFolder folder;
  RolloutRecordOptions options;
  options.keep = folder.path() / "record" / "rollouts";
  RolloutRecord(options).keep(three_samples());
  RolloutRecordOptions other;
  other.read = folder.path();
  const RolloutRecord back(other);
  ASSERT_TRUE(back.reads());
  const RecordedRollout kept = three_samples();
  std::vector<ExpectedSample> expected;
  for (const RecordedSample& each : kept.samples) expected.push_back({each.number, each.sample.prompt, 3});
  EXPECT_EQ(back.read(StepId(7), expected, 256), kept);
}

TEST(RolloutRecord, a_digest_depends_on_every_part_of_every_sample) {
  const std::uint64_t digest = summary_of(three_samples()).digest;
  EXPECT_EQ(summary_of(three_samples()).digest, digest);
  const auto changed = [&](auto change) {
    RecordedRollout other = three_samples();
    change(other.samples[1].sample);
    return summary_of(other).digest;
  };
  EXPECT_NE(changed([](MadeSample& sample) { sample.prompt[0] = 'w'; }), digest);
  EXPECT_NE(changed([](MadeSample& sample) { sample.completion[0] = 'w'; }), digest);
  EXPECT_NE(changed([](MadeSample& sample) { sample.log_probabilities[0] = -0.75F; }), digest);
}

}  // namespace
}  // namespace maestro
