// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_generation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class HfGenerationFile : public testing::Test {
 protected:
  void write(const char* name, const std::string& text) const { folder.write(name, text); }
  void settings(const std::string& text) const { write("generation_config.json", text); }
  [[nodiscard]] std::vector<std::int32_t> ids() const { return read_stop_tokens(folder.path()).value_or_throw(); }
  [[nodiscard]] HfGenerationConfig read() const { return read_hf_generation(folder.path()).value_or_throw(); }
  [[nodiscard]] std::string refusal(const GivenSampling& given = {}) const {
    const auto read = read_hf_generation(folder.path(), given);
    return read.ok() ? "accepted" : read.error().message;
  }
  /// Returns an error's text: the file's name, then `rest`.
  [[nodiscard]] std::string of_file(const std::string& rest) const {
    return (folder.path() / "generation_config.json").string() + ": " + rest;
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
  settings(R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05})");
  const HfGenerationConfig config = read();
  EXPECT_EQ(config.temperature, 0);
  EXPECT_EQ(config.repetition_penalty, 1.05);
  settings(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95})");
  EXPECT_EQ(read().temperature, 0.6);
  EXPECT_EQ(read().top_k, 50) << "the default of transformers";
  EXPECT_EQ(read().top_p, 0.95);
  settings(R"({"do_sample": true})");
  EXPECT_EQ(read().temperature, 1);
}

TEST_F(HfGenerationFile, settings_of_the_caller_replace_the_files) {
  settings(R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95})");
  const GivenSampling warm{.temperature = 0.5, .top_k = {}, .top_p = {}};
  const HfGenerationConfig config = read_hf_generation(folder.path(), warm).value_or_throw();
  EXPECT_EQ(config.temperature, 0.5);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, 0.95);
  settings(R"({"do_sample": true, "temperature": "0.7", "top_k": -1, "top_p": "x"})");
  EXPECT_EQ(refusal({.temperature = 1, .top_k = 2, .top_p = 1}), "accepted");
  EXPECT_EQ(refusal({.temperature = 0, .top_k = {}, .top_p = {}}), "accepted") << "no sample is drawn";
}

TEST_F(HfGenerationFile, sampling_values_neither_end_the_reading_of_stop_tokens_nor_of_a_file_without_do_sample) {
  for (const char* key : {"temperature", "top_p", "top_k"}) {
    for (const char* value : {"0", "0.0", "-1", "\"0.7\"", "50.0", "true", "[]", "null"}) {
      for (const char* sample : {R"("do_sample": false, )", R"("do_sample": null, )", ""}) {
        settings(std::string(R"({"eos_token_id": 4, )") + sample + "\"" + key + "\": " + value + "}");
        EXPECT_THAT(ids(), ElementsAre(4)) << key << value;
        EXPECT_EQ(refusal(), "accepted") << key << value;
        EXPECT_EQ(read().temperature, 0);
        EXPECT_EQ(read().top_k, 0);
        EXPECT_EQ(read().top_p, 1);
        EXPECT_THAT(read().unused, IsEmpty());
      }
    }
  }
  for (const char* value : {R"("repetition_penalty": 0)", R"("repetition_penalty": "1.1")", R"("do_sample": 1)"}) {
    settings(std::string(R"({"eos_token_id": [4, 5], )") + value + "}");
    EXPECT_THAT(ids(), ElementsAre(4, 5)) << value;
  }
}

TEST_F(HfGenerationFile, a_temperature_or_top_p_of_0_is_the_likeliest_token) {
  for (const char* value : {R"("temperature": 0)", R"("temperature": 0.0)", R"("top_p": 0)", R"("top_p": 0.0)"}) {
    settings(std::string(R"({"do_sample": true, )") + value + "}");
    EXPECT_EQ(read().temperature, 0) << value;
    EXPECT_EQ(read().top_p, 1) << value;
  }
  settings(R"({"do_sample": true, "top_p": 1.5})");
  EXPECT_EQ(read().top_p, 1) << "transformers applies a top_p below 1 alone";
}

TEST_F(HfGenerationFile, settings_without_an_effect_are_listed) {
  settings(
      R"({"min_p": 0.05, "num_beams": 1, "max_new_tokens": 99, "pad_token_id": 5, "suppress_tokens": [3],
            "bad_words_ids": [], "typical_p": 1.0, "output_scores": false})");
  EXPECT_THAT(read().unused, ElementsAre("suppress_tokens = [3]"));
  settings(R"({"do_sample": true, "min_p": 0.05, "suppress_tokens": [3]})");
  EXPECT_THAT(read().unused, ElementsAre("min_p = 0.05", "suppress_tokens = [3]"));
}

TEST_F(HfGenerationFile, a_wrong_value_is_refused_by_file_and_key) {
  const std::string file = (folder.path() / "generation_config.json").string();
  for (const char* value : {"-1", "\"a\"", "1.5", "[1, null]", "4294967296"}) {
    settings(std::string(R"({"eos_token_id": )") + value + "}");
    const auto read = read_stop_tokens(folder.path());
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(read.error().message, testing::StartsWith(file + ": eos_token_id"));
  }
  for (const char* key : {"temperature", "top_p", "top_k", "repetition_penalty"}) {
    for (const char* value : {"-1", "\"0.7\"", "true"}) {
      settings(std::string(R"({"do_sample": true, ")") + key + "\": " + value + "}");
      EXPECT_THAT(refusal(), testing::StartsWith(of_file(std::string(key) + ": expected ")));
    }
  }
  settings(R"({"do_sample": true, "top_k": 50.0})");
  EXPECT_EQ(refusal(), of_file("top_k: expected a whole number from 0 on, got 50.0"));
  settings(R"({"do_sample": -1})");
  EXPECT_THAT(refusal(), testing::StartsWith(of_file("do_sample: expected true or false, got -1")));
  settings(R"({"repetition_penalty": 0})");
  EXPECT_THAT(refusal(), testing::StartsWith(of_file("repetition_penalty: expected a number above 0, got 0")));
  settings("{");
  EXPECT_THAT(refusal(), testing::HasSubstr(file));
}

/// GenerationConfig.save_pretrained in transformers 5.24 refuses each input.
TEST(SavableGenerationConfig, settings_that_transformers_refuses_to_save_are_removed) {
  const auto saved = [](const std::string& text) { return savable_generation_config(text, "g.json").value_or_throw(); };
  const auto changed = [&](const std::string& text) { return nlohmann::json::parse(saved(text)); };
  using nlohmann::json;
  for (const char* value :
       {R"("temperature": 0.0)", R"("temperature": 0.6)", R"("temperature": "0.7")", R"("top_p": 0)", R"("top_k": -1)",
        R"("top_k": 20)", R"("min_p": 0.1)", R"("typical_p": 0.9)", R"("epsilon_cutoff": 0.1)", R"("eta_cutoff": 0.1)",
        R"("top_h": 0.4)", R"("early_stopping": true)", R"("length_penalty": 2.0)", R"("output_scores": true)",
        R"("pad_token_id": -1)"}) {
    EXPECT_EQ(changed(std::string(R"({"eos_token_id": 4, )") + value + "}"), json({{"eos_token_id", 4}})) << value;
  }
  EXPECT_EQ(changed(R"({"use_cache": false, "cache_implementation": "static"})"), json({{"use_cache", false}}));
  // Without settings to remove, not a byte is changed.
  for (const char* text :
       {R"({"do_sample":true,  "temperature": 0.6, "top_k": 20, "min_p": 0.1})", R"({"temperature": 1, "top_k": 50})",
        R"({"num_beams": 4, "early_stopping": true, "length_penalty": 2.0, "pad_token_id": 0})",
        R"({"temperature": null, "output_scores": true, "return_dict_in_generate": true})"}) {
    EXPECT_EQ(saved(text), text);
  }
  EXPECT_THAT(savable_generation_config("[]", "g.json").error().message, testing::HasSubstr("g.json"));
}

}  // namespace
}  // namespace maestro
