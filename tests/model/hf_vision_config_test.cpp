// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_vision_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/hf_config.hpp"
#include "tests/model/config_text.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// As published for google/siglip-base-patch16-224 and siglip-so400m-patch14-384 (relevant keys only).
constexpr std::string_view base_text = R"({
  "architectures": ["SiglipModel"], "initializer_factor": 1.0, "model_type": "siglip",
  "text_config": {"model_type": "siglip_text_model"}, "vision_config": {"model_type": "siglip_vision_model"}})";
constexpr std::string_view large_text = R"({
  "model_type": "siglip", "text_config": {"hidden_size": 1152},
  "vision_config": {"hidden_size": 1152, "image_size": 384, "intermediate_size": 4304, "num_attention_heads": 16,
    "num_hidden_layers": 27, "patch_size": 14}})";
constexpr std::string_view llava_text = R"({"model_type": "llava"})";

template <class Config>
std::string refusal(const Result<Config>& config) {
  if (config) return "accepted";
  EXPECT_THAT(config.error().message, AllOf(HasSubstr("model/config.json"), IsOneLine()));
  EXPECT_EQ(config.error().code, ErrorCode::invalid_argument);
  return config.error().message;
}
std::string vision_refusal(std::string_view text) {
  return refusal(parse_hf_vision_config(text, "model/config.json"));
}
std::string projector_refusal(std::string_view text) {
  return refusal(parse_hf_projector_config(text, "model/config.json"));
}

TEST(HfVisionConfig, reads_the_vision_part_of_a_whole_siglip_with_the_librarys_defaults) {
  const VisionConfig config = parse_hf_vision_config(base_text, "config.json").value_or_throw();
  EXPECT_EQ(config.layers, 12);
  EXPECT_EQ(config.width, 768);
  EXPECT_EQ(config.heads, 12);
  EXPECT_EQ(config.ffn, 3072);
  EXPECT_EQ(config.patch, 16);
  EXPECT_EQ(config.positions, PatchPositions::learned);
  EXPECT_EQ(config.max_patches, 196);
  EXPECT_EQ(config.columns, 14);
  EXPECT_TRUE(config.stored);
  EXPECT_EQ(config.norm_epsilon, 1e-6);
}

TEST(HfVisionConfig, pixels_beyond_the_last_whole_patch_have_no_position) {
  const VisionConfig config = parse_hf_vision_config(large_text, "config.json").value_or_throw();
  EXPECT_EQ(config.width, 1152);
  EXPECT_EQ(config.ffn, 4304);
  EXPECT_EQ(config.max_patches, 27 * 27);  // 384 / 14 = 27.4
  EXPECT_EQ(config.columns, 27);
}

TEST(HfVisionConfig, what_is_written_reads_back_as_the_same_model) {
  VisionConfig config;
  config.layers = 3;
  config.width = 48;
  config.heads = 6;
  config.ffn = 100;
  config.patch = 4;
  config.norm_epsilon = 1e-5;
  const auto again = [&] {
    return parse_hf_vision_config(hf_vision_config_text(config), "config.json").value_or_throw();
  };
  for (const std::int64_t patches : {49, 50}) {     // a square grid, and none
    for (const std::int64_t columns : {0, 5, 7}) {  // from each image, and from the table
      config.max_patches = patches;
      config.columns = columns;
      EXPECT_EQ(again().max_patches, patches);
      EXPECT_EQ(again().columns, columns);
      EXPECT_EQ(again().positions, PatchPositions::learned);
    }
  }
  EXPECT_EQ(again().layers, 3);
  EXPECT_EQ(again().width, 48);
  EXPECT_EQ(again().heads, 6);
  EXPECT_EQ(again().ffn, 100);
  EXPECT_EQ(again().patch, 4);
  EXPECT_EQ(again().norm_epsilon, 1e-5);
  config.positions = PatchPositions::grid;
  config.max_grid = 9;
  EXPECT_EQ(again().positions, PatchPositions::grid);
  EXPECT_EQ(again().max_grid, 9);
}

TEST(HfVisionConfig, only_positions_that_siglip_has_are_written_as_a_siglips) {
  VisionConfig config;
  const auto type = [&] { return hf_model_type(hf_vision_config_text(config), "config.json").value_or_throw(); };
  config.max_patches = 16;
  config.columns = 4;
  EXPECT_EQ(type(), "siglip_vision_model");
  EXPECT_THAT(hf_vision_config_text(config), HasSubstr("\"image_size\": 32"));
  config.columns = 2;  // 8 x 2 patches are as many as 4 x 4
  EXPECT_EQ(type(), "maestro_vision");
  config.columns = 0;
  EXPECT_EQ(type(), "maestro_vision");
  config.positions = PatchPositions::grid;
  EXPECT_EQ(type(), "maestro_vision");
  EXPECT_THAT(hf_vision_config_text(config), Not(HasSubstr("iglip"))) << "neither as its model_type nor as its class";
}

TEST(HfVisionConfig, what_earlier_versions_wrote_under_siglips_name_is_read) {
  const auto read = [](const char* keys) {
    return parse_hf_vision_config(replaced(R"({"model_type": "siglip_vision_model"})", "}", keys), "c")
        .value_or_throw();
  };
  const VisionConfig grid = read(R"(, "position_tables": "2d", "max_grid": 16})");
  EXPECT_EQ(grid.positions, PatchPositions::grid);
  EXPECT_EQ(grid.max_grid, 16);
  const VisionConfig learned = read(R"(, "max_patches": 32})");
  EXPECT_EQ(learned.max_patches, 32);
  EXPECT_EQ(learned.columns, 0);
}

TEST(HfVisionConfig, variants_that_would_be_computed_wrongly_are_refused) {
  EXPECT_EQ(vision_refusal(base_text), "accepted");
  const auto changed = [](const char* key) {
    return vision_refusal(replaced(base_text, R"("model_type": "siglip_vision_model")", key));
  };
  EXPECT_THAT(changed(R"("hidden_act": "silu")"), HasSubstr("vision_config.hidden_act = \"silu\" is not supported"));
  EXPECT_THAT(changed(R"("strange_scale": 2)"), HasSubstr("vision_config.strange_scale = 2 is unknown here"));
  EXPECT_THAT(changed(R"("num_channels": 1)"), HasSubstr("num_channels"));
  EXPECT_THAT(changed(R"("num_attention_heads": 7)"), HasSubstr("7 does not divide the width 768"));
  EXPECT_THAT(changed(R"("image_size": 8)"), HasSubstr("image_size: smaller than patch_size = 16"));
  EXPECT_THAT(changed(R"("position_tables": "2d")"), HasSubstr("max_grid is missing"));
  EXPECT_THAT(changed(R"("hidden_size": "wide")"), HasSubstr("hidden_size: expected a whole number"));
  EXPECT_THAT(vision_refusal(R"({"model_type": "clip"})"),
              HasSubstr("model_type = \"clip\" is not supported; these are: siglip_vision_model, siglip, "
                        "maestro_vision, llava, llava_onevision, gemma3, paligemma, smolvlm, idefics3"));
  EXPECT_THAT(vision_refusal(R"({"model_type": "siglip", "vision_config": 3})"),
              HasSubstr("vision_config: expected an object, got 3"));
  EXPECT_THAT(vision_refusal("[]"), HasSubstr("expected an object, got []"));
}

TEST(HfVisionConfig, an_encoder_that_differs_from_siglip_reads_back_as_itself) {
  VisionConfig config;
  config.ffn = 1024;
  config.max_patches = 16;
  config.columns = 4;
  config.stored = true;
  const auto again = [&] { return parse_hf_vision_config(hf_vision_config_text(config), "config.json"); };
  for (const GeluKind kind : {GeluKind::tanh, GeluKind::erf, GeluKind::quick}) {
    config.activation = kind;
    EXPECT_EQ(again().value_or_throw(), config) << static_cast<int>(kind);
    EXPECT_THAT(hf_vision_config_text(config), HasSubstr("siglip_vision_model"));
  }
  config.class_row = config.pre_norm = true;
  config.last_norm = config.patch_bias = false;
  config.layers_run = 5;
  config.whole_tiles = true;
  EXPECT_EQ(again().value_or_throw(), config);
  EXPECT_THAT(hf_vision_config_text(config), HasSubstr("maestro_vision"));
}

TEST(HfProjectorConfig, what_is_written_is_no_llava_and_what_earlier_versions_wrote_as_one_is_read) {
  ProjectorConfig config;
  config.vision_width = 12;
  config.width = 34;
  const std::string written = hf_projector_config_text(config);
  EXPECT_EQ(hf_model_type(written, "config.json").value_or_throw(), "maestro_projector");
  EXPECT_EQ(parse_hf_projector_config(written, "config.json").value_or_throw(), config);
  const std::string earlier = replaced(written, "maestro_projector", "llava");
  EXPECT_EQ(parse_hf_projector_config(earlier, "config.json").value_or_throw(), config);
  config.join = 4;
  config.products = 1;
  config.activation = GeluKind::erf;
  config.biases = false;
  config.tile_rows = 17;
  config.newline = true;
  EXPECT_EQ(parse_hf_projector_config(hf_projector_config_text(config), "config.json").value_or_throw(), config);
}

TEST(HfProjectorConfig, variants_that_would_be_computed_wrongly_are_refused) {
  const std::string good = replaced(replaced(hf_projector_config_text({}), ": 0\n", ": 8\n"), ": 0\n", ": 8\n");
  const auto changed = [&](const char* key) {
    return projector_refusal(replaced(good, "{", "{" + std::string(key) + ","));
  };
  EXPECT_EQ(projector_refusal(replaced(good, "gelu_pytorch_tanh", "gelu")), "accepted");
  EXPECT_THAT(projector_refusal(replaced(good, "gelu_pytorch_tanh", "relu")),
              HasSubstr("projector_hidden_act = \"relu\" is not supported"));
  EXPECT_THAT(changed("\"quantization_config\": {\"bits\": 4}"), HasSubstr("quantization_config"));
  EXPECT_THAT(changed("\"products\": 3"), HasSubstr("products: expected a whole number from 1 to 2"));
  EXPECT_THAT(changed("\"strange_scale\": 2"), HasSubstr("strange_scale = 2 is unknown here"));
  EXPECT_THAT(projector_refusal(base_text), HasSubstr("model_type = \"siglip\""));
}

TEST(HfConfig, the_model_type_of_any_family_can_be_asked_for) {
  EXPECT_EQ(hf_model_type(llava_text, "config.json").value_or_throw(), "llava");
  EXPECT_THAT(refusal(hf_model_type("{}", "model/config.json")), HasSubstr("model_type is missing"));
}

}  // namespace
}  // namespace maestro
