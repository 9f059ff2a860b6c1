// SPDX-License-Identifier: Apache-2.0
// Stored models that differ from the section's model: each setting that decides shapes or results is compared.
#include "sections/model_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_vision_config.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Config>
struct Change {
  std::string difference;  ///< name in the error
  std::function<void(Config&)> make;
};

/// Compares a section with folders that each store one change of its configuration `own`.
template <class Config>
void expect_differences(const Config& own, std::string (*text)(const Config&),
                        const std::vector<Change<Config>>& changes) {
  const TempFolder folder;
  folder.write("config.json", text(own));
  EXPECT_TRUE(check_same_model(text(own), folder.path()).ok());
  for (const Change<Config>& change : changes) {
    Config stored = own;
    change.make(stored);
    folder.write("config.json", text(stored));
    const Status same = check_same_model(text(own), folder.path());
    ASSERT_FALSE(same.ok()) << change.difference;
    EXPECT_THAT(same.error().message, AllOf(HasSubstr("config.json"), HasSubstr(change.difference)));
  }
}

DecoderConfig decoder(DecoderFamily family) {
  DecoderConfig config;
  config.family = family;
  config.width = 64;
  config.ffn = 96;
  return config;
}

TEST(ModelConfig, of_another_llama_is_refused_by_the_setting_that_differs) {
  expect_differences<DecoderConfig>(
      decoder(DecoderFamily::llama), hf_config_text,
      {{"vocab_size is 300, but the section has 256", [](auto& it) { it.vocabulary = 300; }},
       {"num_hidden_layers is 5, but the section has 4", [](auto& it) { it.layers = 5; }},
       {"hidden_size is 32, but the section has 64", [](auto& it) { it.width = 32; }},
       {"num_attention_heads is 8, but the section has 4", [](auto& it) { it.heads = 8; }},
       {"num_key_value_heads is 2, but the section has 4", [](auto& it) { it.kv_heads = 2; }},
       {"intermediate_size is 128, but the section has 96", [](auto& it) { it.ffn = 128; }},
       {"max_position_embeddings is 512, but the section has 1024", [](auto& it) { it.positions = 512; }},
       {"tie_word_embeddings is false, but the section has true", [](auto& it) { it.tied = false; }},
       {"rms_norm_eps is 0.001, but the section has 1e-05", [](auto& it) { it.norm_epsilon = 1e-3; }},
       {"rope_theta is 5000, but the section has 10000", [](auto& it) { it.rope_theta = 5000; }},
       {"model_type is gpt2, but the section is of family llama", [](auto& it) { it.family = DecoderFamily::gpt2; }}});
}

TEST(ModelConfig, of_another_lfm2_is_refused_by_the_layer_that_differs) {
  DecoderConfig own = with_family(decoder(DecoderFamily::lfm2), DecoderFamily::lfm2);
  own.mixers = {{.kind = MixerKind::convolution}, {}, {}, {}};
  expect_differences<DecoderConfig>(
      own, hf_config_text,
      {{"layer_types is conv conv full full , but the section has conv full full full ",
        [](auto& it) { it.mixers[1].kind = MixerKind::convolution; }},
       {"conv_L_cache is 4, but the section has 3", [](auto& it) { it.conv_width = 4; }},
       {"conv_bias is true, but the section has false", [](auto& it) { it.conv_bias = true; }}});
}

TEST(ModelConfig, of_another_gpt2_is_refused_by_the_setting_that_differs) {
  expect_differences<DecoderConfig>(
      decoder(DecoderFamily::gpt2), hf_config_text,
      {{"n_layer is 5, but the section has 4", [](auto& it) { it.layers = 5; }},
       {"n_embd is 32, but the section has 64", [](auto& it) { it.width = 32; }},
       {"n_head is 8, but the section has 4", [](auto& it) { it.heads = 8; }},
       {"n_inner is 128, but the section has 96", [](auto& it) { it.ffn = 128; }},
       {"n_positions is 512, but the section has 1024", [](auto& it) { it.positions = 512; }},
       {"layer_norm_epsilon is 0.001, but the section has 1e-05", [](auto& it) { it.norm_epsilon = 1e-3; }}});
}

TEST(ModelConfig, of_another_vision_encoder_is_refused_by_the_setting_that_differs) {
  VisionConfig own;
  own.ffn = 512;
  own.positions = PatchPositions::grid;
  own.max_patches = 64;
  expect_differences<VisionConfig>(
      own, hf_vision_config_text,
      {{"num_hidden_layers is 5, but the section has 6", [](auto& it) { it.layers = 5; }},
       {"hidden_size is 128, but the section has 256", [](auto& it) { it.width = 128; }},
       {"num_attention_heads is 8, but the section has 4", [](auto& it) { it.heads = 8; }},
       {"intermediate_size is 256, but the section has 512", [](auto& it) { it.ffn = 256; }},
       {"patch_size is 16, but the section has 8", [](auto& it) { it.patch = 16; }},
       {"layer_norm_eps is 0.001, but the section has 1e-06", [](auto& it) { it.norm_epsilon = 1e-3; }},
       {"max_grid is 32, but the section has 128", [](auto& it) { it.max_grid = 32; }}});
}

}  // namespace
}  // namespace maestro
