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
// As published for llava-hf/llava-1.5-7b-hf, whose activation is the exact GELU.
constexpr std::string_view llava_text = R"({
  "model_type": "llava", "projector_hidden_act": "gelu", "text_config": {"model_type": "llama"},
  "vision_config": {"hidden_size": 1024, "patch_size": 14}, "vision_feature_layer": -2})";

/// Returns the only supported LLaVA projector: tanh GELU, all features of the last layer.
std::string supported_llava() {
  const std::string text = replaced(llava_text, "\"gelu\"", "\"gelu_pytorch_tanh\"");
  return replaced(text, "\"vision_feature_layer\": -2",
                  "\"vision_feature_layer\": -1, \"vision_feature_select_strategy\": \"full\"");
}

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
  EXPECT_THAT(changed(R"("hidden_act": "gelu")"), HasSubstr("vision_config.hidden_act = \"gelu\" is not supported"));
  EXPECT_THAT(changed(R"("num_channels": 1)"), HasSubstr("num_channels"));
  EXPECT_THAT(changed(R"("num_attention_heads": 7)"), HasSubstr("7 does not divide the width 768"));
  EXPECT_THAT(changed(R"("image_size": 8)"), HasSubstr("image_size: smaller than patch_size = 16"));
  EXPECT_THAT(changed(R"("position_tables": "2d")"), HasSubstr("max_grid is missing"));
  EXPECT_THAT(changed(R"("hidden_size": "wide")"), HasSubstr("hidden_size: expected a whole number"));
  EXPECT_THAT(vision_refusal(R"({"model_type": "clip"})"), HasSubstr("model_type = \"clip\" is not supported"));
  EXPECT_THAT(vision_refusal(R"({"model_type": "siglip", "vision_config": 3})"),
              HasSubstr("vision_config: expected an object, got 3"));
  EXPECT_THAT(vision_refusal("[]"), HasSubstr("expected an object, got []"));
}

TEST(HfProjectorConfig, reads_the_widths_that_the_file_states) {
  const ProjectorConfig config = parse_hf_projector_config(supported_llava(), "config.json").value_or_throw();
  EXPECT_EQ(config.vision_width, 1024);
  EXPECT_EQ(config.width, 0) << "not stated";
  EXPECT_TRUE(config.of_llava);
  const ProjectorConfig again =
      parse_hf_projector_config(hf_projector_config_text({12, 34, 0.02}), "config.json").value_or_throw();
  EXPECT_EQ(again.vision_width, 12);
  EXPECT_EQ(again.width, 34);
  EXPECT_FALSE(again.of_llava);
}

TEST(HfProjectorConfig, what_is_written_is_no_llava_and_what_earlier_versions_wrote_as_one_is_read) {
  const std::string written = hf_projector_config_text({12, 34, 0.02});
  EXPECT_EQ(hf_model_type(written, "config.json").value_or_throw(), "maestro_projector");
  const std::string earlier = replaced(written, "maestro_projector", "llava");
  const ProjectorConfig config = parse_hf_projector_config(earlier, "config.json").value_or_throw();
  EXPECT_EQ(config.vision_width, 12);
  EXPECT_FALSE(config.of_llava);
}

TEST(HfProjectorConfig, variants_that_would_be_computed_wrongly_are_refused) {
  EXPECT_THAT(projector_refusal(llava_text), HasSubstr("projector_hidden_act = \"gelu\" is not supported"));
  const std::string good = supported_llava();
  EXPECT_EQ(projector_refusal(good), "accepted");
  EXPECT_THAT(projector_refusal(replaced(good, ": -1", ": -2")),
              HasSubstr("vision_feature_layer = -2 is not supported; only the last layer, -1, is"));
  EXPECT_THAT(projector_refusal(replaced(good, ": -1", ": [-2, -5]")), HasSubstr("vision_feature_layer = [-2,-5]"));
  EXPECT_THAT(projector_refusal(replaced(good, "\"vision_feature_layer\": -1, ", "")),
              HasSubstr("vision_feature_layer (absent) is not supported"))
      << "the library's default";
  EXPECT_THAT(projector_refusal(replaced(good, "\"full\"", "\"default\"")),
              HasSubstr("vision_feature_select_strategy = \"default\" is not supported; these are: full"));
  EXPECT_THAT(projector_refusal(replaced(good, ", \"vision_feature_select_strategy\": \"full\"", "")),
              HasSubstr("vision_feature_select_strategy (absent) is not supported"));
  EXPECT_THAT(projector_refusal(replaced(good, "\"patch_size\": 14", "\"model_type\": \"siglip_vision_model\"")),
              "accepted");
  for (const char* key : {"\"multimodal_projector_bias\": false", "\"quantization_config\": {}"}) {
    EXPECT_THAT(projector_refusal(replaced(good, "{", "{" + std::string(key) + ", ")),
                HasSubstr(std::string(key).substr(1, 12)));
  }
  EXPECT_THAT(projector_refusal(base_text), HasSubstr("model_type = \"siglip\""));
}

TEST(HfConfig, the_model_type_of_any_family_can_be_asked_for) {
  EXPECT_EQ(hf_model_type(llava_text, "config.json").value_or_throw(), "llava");
  EXPECT_THAT(refusal(hf_model_type("{}", "model/config.json")), HasSubstr("model_type is missing"));
}

}  // namespace
}  // namespace maestro
