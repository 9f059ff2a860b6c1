// SPDX-License-Identifier: Apache-2.0
// The language models in folders of vision-language models, against transformers (record_text_parts.py).
#include "runtime/model/text_part.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/files/posix_file.hpp"
#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/state_io.hpp"
#include "sections/weights_folder.hpp"
#include "tests/sections/renamed_tensors.hpp"
#include "tests/sections/section_bench.hpp"
#include "tests/support/one_line.hpp"

namespace maestro::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* families[] = {"llava",     "llava_onevision", "internvl",   "gemma3",
                                    "paligemma", "qwen2_vl",        "qwen2_5_vl", "qwen3_vl",
                                    "smolvlm",   "idefics3",        "qwen3_5",    "qwen3_5_moe"};

class TextPartFolders : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
};

class TextPart : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static fs::path recorded() { return reference_folder("text_parts") / GetParam(); }
  [[nodiscard]] static json read(const fs::path& file) { return json::parse(read_text(file).value_or_throw()); }

  /// Copies the recorded folder with its tensors renamed and its config.json changed.
  void copy_changed(const json& names, const json& config) {
    write_renamed(recorded() / "model.safetensors", names, folder_.path() / "model.safetensors");
    (void)write_file(folder_.path() / "config.json", config.dump()).value_or_throw();
  }
  void expect_logits(const fs::path& folder) {
    const auto expected = SafetensorsFile::open(recorded() / "expected.safetensors").value_or_throw();
    const std::vector<std::int32_t> tokens = integers(expected, "tokens");
    const DecoderConfig config = read_hf_config(folder).value_or_throw();
    DecoderTrunk trunk(bench_.context("teacher", false), {config, TeacherOutput::logits, 1, {}});
    load_weights(trunk, folder).or_throw();
    const Batch batch{tokens, tokens, {0, static_cast<std::int32_t>(tokens.size())}};
    MicroBatch pass(bench_, trunk, batch, Pass::evaluate);
    pass.forward();
    EXPECT_LT(largest_difference(pass.output("logits"), expected.tensor("logits").value_or_throw()), 5e-5);
  }
  [[nodiscard]] std::string refusal() const {
    const auto config = read_hf_config(folder_.path());
    if (!config) return config.error().message;
    const auto weights = WeightsFolder::open(folder_.path());
    return weights ? "nothing" : weights.error().message;
  }

  Bench bench_;
  TemporaryFolder folder_;
};

TEST_P(TextPart, has_the_logits_of_the_complete_model) {
  expect_logits(recorded());
}

TEST_P(TextPart, is_found_under_the_names_of_the_modules) {
  copy_changed(read(recorded() / "names.json"), read(recorded() / "config.json"));
  expect_logits(folder_.path());
}

TEST_P(TextPart, keeps_its_settings_as_a_model_of_its_own) {
  const std::string text = read_text(recorded() / "config.json").value_or_throw();
  const std::string own = language_model_config(text, "config.json").value_or_throw();
  DecoderConfig complete = parse_hf_config(text, "config.json").value_or_throw();
  complete.image_mask = ImageMask::causal;  // the separate language model reads no images
  complete.rope_sections.clear();
  complete.rope_interleaved = false;
  EXPECT_TRUE(parse_hf_config(own, "own").value_or_throw() == complete);
  const std::string type = json::parse(own)["model_type"];
  EXPECT_FALSE(has_text_part(type)) << type;
  EXPECT_EQ(json::parse(own)["eos_token_id"], 2);
}

TEST_P(TextPart, refuses_an_unknown_key_and_an_unknown_tensor_by_name) {  // VL-1
  json config = read(recorded() / "config.json");
  config["strange_scale"] = 2;
  copy_changed(json::object(), config);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("strange_scale = 2 is unknown here"), IsOneLine()));
  config.erase("strange_scale");
  config["text_config"]["strange_scale"] = 2;
  copy_changed(json::object(), config);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("text_config: strange_scale = 2 is unknown here"), IsOneLine()));
  const json names = read(recorded() / "names.json");
  copy_changed({{names.begin().key(), "stranger.weight"}}, read(recorded() / "config.json"));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("tensor 'stranger.weight' belongs to no known part of a " +
                                         std::string(GetParam()) + " model"),
                               IsOneLine()));
}

TEST_F(TextPartFolders, of_a_qwen3_5_may_have_layers_for_further_tokens) {
  const fs::path recorded = reference_folder("text_parts") / "qwen3_5";
  write_renamed(recorded / "model.safetensors", {{"model.visual.pos_embed.weight", "mtp.fc.weight"}},
                folder_.path() / "model.safetensors");
  fs::copy_file(recorded / "config.json", folder_.path() / "config.json");
  const auto weights = WeightsFolder::open(folder_.path()).value_or_throw();
  EXPECT_THAT(weights.names(), ::testing::Contains("model.layers.0.linear_attn.A_log"));
  EXPECT_THAT(weights.names(), ::testing::Not(::testing::Contains(HasSubstr("mtp"))));
}

INSTANTIATE_TEST_SUITE_P(families, TextPart, ::testing::ValuesIn(families),
                         [](const auto& test) { return std::string(test.param); });

TEST(TextPartConfig, has_the_defaults_of_its_class) {  // VL-2
  const DecoderConfig gemma =
      parse_hf_config(R"({"model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
        "num_hidden_layers": 34, "model_type": "gemma3_text", "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}, "vision_config": {}})",
                      "config.json")
          .value_or_throw();
  EXPECT_EQ(gemma.heads, 8);
  EXPECT_EQ(gemma.kv_heads, 4);
  EXPECT_EQ(gemma.head_size, 256);
  EXPECT_EQ(gemma.vocabulary, 262208);
  EXPECT_TRUE(gemma.tied);
  EXPECT_FALSE(gemma.mixer_of(5).windowed);
  EXPECT_TRUE(gemma.mixer_of(4).windowed);
  EXPECT_EQ(gemma.image_mask, ImageMask::images);
  const DecoderConfig first =
      parse_hf_config(R"({"model_type": "paligemma", "text_config": {"hidden_size": 2048, "num_attention_heads": 8,
        "num_hidden_layers": 18, "num_key_value_heads": 1, "intermediate_size": 16384, "vocab_size": 257216,
        "use_bidirectional_attention": true}})",
                      "config.json")
          .value_or_throw();
  EXPECT_EQ(first.family, DecoderFamily::gemma);
  EXPECT_EQ(first.head_size, 256);
  EXPECT_EQ(first.positions, 8192);
  EXPECT_EQ(first.image_mask, ImageMask::prefix);
}

TEST(TextPartConfig, of_an_old_qwen_file_is_at_its_root) {
  const DecoderConfig qwen =
      parse_hf_config(
          R"({"model_type": "qwen2_vl", "hidden_size": 1536, "intermediate_size": 8960, "vocab_size": 151936,
        "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "max_position_embeddings": 32768, "rope_theta": 1000000.0, "tie_word_embeddings": true, "hidden_act": "silu",
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vision_start_token_id": 151652,
        "use_sliding_window": false, "sliding_window": 32768, "max_window_layers": 28,
        "vision_config": {"depth": 32, "in_chans": 3}})",
          "config.json")
          .value_or_throw();
  EXPECT_EQ(qwen.family, DecoderFamily::qwen2);
  EXPECT_EQ(qwen.width, 1536);
  EXPECT_EQ(qwen.rope_theta, 1e6);
  EXPECT_TRUE(qwen.tied);
  EXPECT_EQ(qwen.window, 0);
}

TEST(TextPartConfig, of_a_family_that_is_not_supported_is_refused_by_name) {
  const auto refused = parse_hf_config(R"({"model_type": "paligemma", "text_config": {"model_type": "t5"}})", "c.json");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("c.json: text_config.model_type = \"t5\""), HasSubstr("not supported"), IsOneLine()));
  const auto absent = parse_hf_config(R"({"model_type": "llava"})", "c.json");
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(absent.error().message, HasSubstr("text_config"));
}

}  // namespace
}  // namespace maestro::testing
