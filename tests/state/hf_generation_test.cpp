// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/hf_generation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class HfGenerationFile : public testing::Test {
 protected:
  void write(const char* name, const std::string& text) const { folder.write(name, text); }
  [[nodiscard]] std::vector<std::int32_t> ids() const { return read().stop_tokens; }
  [[nodiscard]] HfGenerationConfig read() const { return read_hf_generation(folder.path()).value_or_throw(); }
  [[nodiscard]] std::string refusal() const {
    const auto read = read_hf_generation(folder.path());
    return read.ok() ? "accepted" : read.error().message;
  }
  const TempFolder folder;
};

TEST_F(HfGenerationFile, stop_tokens_are_an_id_or_a_list) {
  write("generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_THAT(ids(), ElementsAre(7));
  write("generation_config.json", R"({"eos_token_id": [3, 1]})");
  EXPECT_THAT(ids(), ElementsAre(3, 1));
}

TEST_F(HfGenerationFile, config_json_counts_where_generation_config_json_has_none) {
  EXPECT_THAT(ids(), IsEmpty());
  write("config.json", R"({"eos_token_id": 5})");
  EXPECT_THAT(ids(), ElementsAre(5));
  write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_THAT(ids(), ElementsAre(5));
  write("generation_config.json", R"({"eos_token_id": 6})");
  EXPECT_THAT(ids(), ElementsAre(6));
}

TEST_F(HfGenerationFile, samples_are_drawn_where_do_sample_asks_for_them) {
  write("generation_config.json", R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05})");
  HfGenerationConfig config = read();
  EXPECT_EQ(config.temperature, 0);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, 0.95);
  EXPECT_EQ(config.repetition_penalty, 1.05);
  write("generation_config.json", R"({"do_sample": true, "temperature": 0.6})");
  EXPECT_EQ(read().temperature, 0.6);
  EXPECT_EQ(read().top_k, 50) << "the default of transformers";
  write("generation_config.json", R"({"do_sample": true})");
  EXPECT_EQ(read().temperature, 1);
}

TEST_F(HfGenerationFile, settings_without_an_effect_are_listed) {
  write("generation_config.json",
        R"({"min_p": 0.05, "num_beams": 1, "max_new_tokens": 99, "pad_token_id": 5, "suppress_tokens": [3],
            "bad_words_ids": [], "typical_p": 1.0, "output_scores": false})");
  EXPECT_THAT(read().unused, ElementsAre("min_p = 0.05", "suppress_tokens = [3]"));
}

TEST_F(HfGenerationFile, a_wrong_value_is_refused_by_file_and_key) {
  const std::string file = (folder.path() / "generation_config.json").string();
  for (const char* value : {"-1", "\"a\"", "1.5", "[1, null]", "4294967296"}) {
    write("generation_config.json", std::string(R"({"eos_token_id": )") + value + "}");
    EXPECT_THAT(refusal(), testing::StartsWith(file + ": eos_token_id is "));
  }
  for (const char* key : {"temperature", "top_p", "top_k", "repetition_penalty", "do_sample"}) {
    write("generation_config.json", std::string(R"({")") + key + R"(": -1})");
    EXPECT_THAT(refusal(), testing::StartsWith(file + ": " + key + " is -1"));
  }
  write("generation_config.json", R"({"top_p": 1.5})");
  EXPECT_EQ(refusal(), file + ": top_p is 1.5; it must be at most 1");
  write("generation_config.json", "{");
  EXPECT_THAT(refusal(), testing::HasSubstr(file));
}

}  // namespace
}  // namespace maestro
