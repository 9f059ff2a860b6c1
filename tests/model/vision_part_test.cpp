// SPDX-License-Identifier: Apache-2.0
// Vision encoders and projectors in config.json of vision-language models; defaults are recorded from transformers by
// record_vision_defaults.py.
#include "runtime/model/vision_part.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/core/input_file.hpp"
#include "tests/model/config_text.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// As published for llava-hf/llava-1.5-7b-hf, HuggingFaceTB/SmolVLM2-500M-Video-Instruct and
// llava-hf/llava-onevision-qwen2-0.5b-ov-hf (relevant keys only).
constexpr std::string_view llava = R"({
  "architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100, "image_seq_length": 576,
  "image_token_index": 32000, "model_type": "llava", "pad_token_id": 32001, "projector_hidden_act": "gelu",
  "text_config": {"max_position_embeddings": 4096, "model_type": "llama", "rms_norm_eps": 1e-05, "vocab_size": 32064},
  "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.46.0",
  "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
    "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14,
    "projection_dim": 768, "vocab_size": 32000},
  "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "vocab_size": 32064})";
constexpr std::string_view smolvlm = R"({
  "architectures": ["SmolVLMForConditionalGeneration"], "image_token_id": 49190, "model_type": "smolvlm",
  "pad_token_id": 2, "scale_factor": 4, "text_config": {"hidden_size": 960, "intermediate_size": 2560,
    "num_attention_heads": 15, "num_hidden_layers": 32, "num_key_value_heads": 5, "vocab_size": 49280,
    "neftune_noise_alpha": 0.0, "pixel_shuffle_factor": 4, "qk_layer_norms": false, "use_resampler": false},
  "tie_word_embeddings": false, "use_cache": false, "use_reentrant_checkpointing": false,
  "vision_config": {"hidden_size": 768, "image_size": 512, "max_image_size": {"longest_edge": 512},
    "model_type": "smolvlm_vision", "num_attention_heads": 12, "patch_size": 16, "size": {"longest_edge": 2048},
    "tie_word_embeddings": false, "use_base_siglip": false}, "vocab_size": 49280})";
constexpr std::string_view onevision = R"({
  "image_grid_pinpoints": [[384, 384], [384, 768]], "image_token_index": 151646, "model_type": "llava_onevision",
  "projector_hidden_act": "gelu", "text_config": {"hidden_size": 896, "model_type": "qwen2"},
  "use_image_newline_parameter": true, "video_token_index": 151647, "vision_aspect_ratio": "anyres_max_9",
  "vision_config": {"hidden_size": 1152, "image_size": 384, "intermediate_size": 4304,
    "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 26, "patch_size": 14,
    "vision_use_head": false}, "vision_feature_layer": -1, "vision_feature_select_strategy": "full"})";

VisionPart part_of(std::string_view text) {
  return parse_vision_part(text, "config.json").value_or_throw();
}
std::string part_refusal(std::string_view text) {
  const auto part = parse_vision_part(text, "model/config.json");
  if (part) return "accepted";
  EXPECT_THAT(part.error().message, AllOf(HasSubstr("model/config.json"), IsOneLine()));
  EXPECT_EQ(part.error().code, ErrorCode::invalid_argument);
  return part.error().message;
}
std::string with_key(std::string_view text, const std::string& key) {
  return replaced(text, "{", "{" + key + ", ");
}

TEST(VisionPart, of_a_llava_runs_all_layers_but_the_last_and_drops_class_rows) {
  const VisionPart part = part_of(llava);
  VisionConfig encoder;
  encoder.layers = 24;
  encoder.layers_run = 23;
  encoder.width = 1024;
  encoder.heads = 16;
  encoder.ffn = 4096;
  encoder.patch = 14;
  encoder.max_patches = 576;
  encoder.columns = 24;
  encoder.stored = true;
  encoder.norm_epsilon = 1e-5;
  encoder.activation = GeluKind::quick;
  encoder.class_row = encoder.pre_norm = true;
  encoder.last_norm = encoder.patch_bias = false;
  encoder.whole_tiles = true;
  EXPECT_EQ(part.encoder, encoder);
  EXPECT_EQ(part.image_token, 32000);
  ProjectorConfig projector;
  projector.vision_width = 1024;
  projector.width = 4096;
  projector.activation = GeluKind::erf;
  projector.tile_rows = 577;
  EXPECT_EQ(part.projector, projector);
  EXPECT_EQ(part_of(replaced(llava, "\"default\"", "\"full\"")).projector.tile_rows, 0);
}

TEST(VisionPart, of_a_smolvlm_joins_blocks_of_patches_by_one_product) {
  const VisionPart part = part_of(smolvlm);
  EXPECT_EQ(part.encoder.layers, 12) << "its class's number, as it is absent";
  EXPECT_EQ(part.encoder.ffn, 3072);
  EXPECT_EQ(part.encoder.max_patches, 1024);
  EXPECT_TRUE(part.encoder.last_norm);
  EXPECT_TRUE(part.encoder.patch_bias);
  EXPECT_EQ(part.encoder.layers_run, 0);
  ProjectorConfig projector;
  projector.vision_width = 768;
  projector.width = 960;
  projector.join = 16;
  projector.products = 1;
  projector.biases = false;
  EXPECT_EQ(part.projector, projector);
  EXPECT_EQ(part.image_token, 49190);
}

TEST(VisionPart, of_a_onevision_takes_the_stream_before_the_last_norm_and_fits_images) {
  const VisionPart part = part_of(onevision);
  EXPECT_FALSE(part.encoder.last_norm);
  EXPECT_EQ(part.encoder.layers_run, 0);
  EXPECT_EQ(part.encoder.columns, 27);
  EXPECT_EQ(part.most_tiles, 9);
  EXPECT_EQ(part.canvases, (std::vector<ImageCanvas>{{384, 384}, {384, 768}}));
  EXPECT_TRUE(part.projector.newline);
  EXPECT_EQ(part.projector.tile_rows, 0);
}

TEST(VisionPart, takes_absent_keys_from_the_classes_of_transformers) {  // VP-2
  const auto file = std::filesystem::path(MAESTRO_SOURCE_DIR) / "tests/model/references/vision_defaults.json";
  const json recorded = json::parse(read_text(file).value_or_throw());
  const std::map<std::string, GeluKind> kinds = {
      {"gelu_pytorch_tanh", GeluKind::tanh}, {"gelu", GeluKind::erf}, {"quick_gelu", GeluKind::quick}};
  for (const json& each : recorded["cases"]) {
    SCOPED_TRACE(each["config"].dump());
    if (each["config"]["model_type"] == "llava" && each["expected"]["vision_feature_layer"] == -1) {
      EXPECT_EQ(part_of(each["config"].dump()).encoder.layers_run, 0);
    }
    const VisionPart part = part_of(each["config"].dump());
    const json& expected = each["expected"];
    const json& vision = expected["vision"];
    EXPECT_EQ(part.encoder.layers, vision["num_hidden_layers"]);
    EXPECT_EQ(part.encoder.width, vision["hidden_size"]);
    EXPECT_EQ(part.encoder.heads, vision["num_attention_heads"]);
    EXPECT_EQ(part.encoder.ffn, vision["intermediate_size"]);
    EXPECT_EQ(part.encoder.patch, vision["patch_size"]);
    EXPECT_EQ(part.encoder.columns, vision["image_size"].get<std::int64_t>() / part.encoder.patch);
    EXPECT_EQ(part.encoder.activation, kinds.at(vision["hidden_act"]));
    EXPECT_EQ(part.encoder.norm_epsilon, vision["layer_norm_eps"]);
    EXPECT_EQ(part.image_token, expected["image_token"]);
    EXPECT_EQ(part.projector.vision_width, vision["hidden_size"]);
    EXPECT_EQ(part.projector.width, expected["text_width"]);
    if (expected.contains("scale_factor")) {
      const std::int64_t factor = expected["scale_factor"];
      EXPECT_EQ(part.projector.join, factor * factor);
      continue;
    }
    EXPECT_EQ(part.projector.activation, kinds.at(expected["projector_hidden_act"]));
    EXPECT_EQ(part.projector.biases, expected["multimodal_projector_bias"]);
    EXPECT_EQ(part.projector.tile_rows > 0, expected["vision_feature_select_strategy"] == "default");
    EXPECT_EQ(part.most_tiles, expected.contains("vision_aspect_ratio") ? 9 : 0);
    if (!expected.contains("image_grid_pinpoints")) continue;
    std::vector<ImageCanvas> canvases;
    for (const json& pair : expected["image_grid_pinpoints"]) canvases.push_back({pair[0], pair[1]});
    EXPECT_EQ(part.canvases, canvases);
  }
}

TEST(VisionPart, refuses_every_unknown_key_by_name) {  // VP-1
  for (const std::string_view text : {llava, smolvlm, onevision}) {
    EXPECT_EQ(part_refusal(text), "accepted");
    EXPECT_THAT(part_refusal(with_key(text, "\"strange_scale\": 2")), HasSubstr("strange_scale = 2 is unknown here"));
    EXPECT_THAT(part_refusal(replaced(text, "\"vision_config\": {", "\"vision_config\": {\"strange_scale\": 2, ")),
                HasSubstr("vision_config.strange_scale = 2 is unknown here"));
    EXPECT_THAT(part_refusal(with_key(text, "\"quantization_config\": {\"bits\": 4}")),
                HasSubstr("quantization_config"));
    EXPECT_THAT(part_refusal(with_key(text, "\"downsample_ratio\": 0.5")),
                HasSubstr("downsample_ratio = 0.5 is unknown here"))
        << "a key of InternVL";
  }
  EXPECT_THAT(part_refusal(with_key(llava, "\"scale_factor\": 2")), HasSubstr("scale_factor = 2 is unknown here"));
  EXPECT_THAT(part_refusal(with_key(smolvlm, "\"vision_feature_layer\": -2")),
              HasSubstr("vision_feature_layer = -2 is unknown here"));
}

TEST(VisionPart, refuses_variants_that_would_be_computed_wrongly) {
  EXPECT_THAT(part_refusal(replaced(llava, "_layer\": -2", "_layer\": [-2, -5]")),
              HasSubstr("vision_feature_layer = [-2,-5] is not supported; only a single layer is"));
  EXPECT_THAT(part_refusal(replaced(llava, "_layer\": -2", "_layer\": 25")), HasSubstr("from -25 to 24"));
  EXPECT_THAT(part_refusal(replaced(llava, "_layer\": -2", "_layer\": 0")),
              HasSubstr("the input of the first of 24 layers"));
  EXPECT_EQ(part_of(replaced(llava, "_layer\": -2", "_layer\": 3")).encoder.layers_run, 3);
  EXPECT_THAT(part_refusal(replaced(llava, "clip_vision_model", "siglip_vision_model")),
              HasSubstr("drops the first patch of an encoder without a class row"));
  EXPECT_THAT(part_refusal(replaced(llava, "clip_vision_model", "pixtral")),
              HasSubstr("vision_config.model_type = \"pixtral\" is not supported; these are: clip_vision_model, "
                        "siglip_vision_model"));
  EXPECT_THAT(part_refusal(replaced(llava, "\"gelu\"", "\"relu\"")), HasSubstr("projector_hidden_act = \"relu\""));
  EXPECT_THAT(part_refusal(replaced(smolvlm, "\"scale_factor\": 4", "\"scale_factor\": 3")),
              HasSubstr("scale_factor: 3 does not divide the 32 patches"));
  EXPECT_THAT(part_refusal(replaced(onevision, "anyres_max_9", "anyres")), HasSubstr("only anyres_max_K is"));
  EXPECT_THAT(part_refusal(replaced(onevision, "[384, 768]", "[384]")), HasSubstr("expected a height and a width"));
}

TEST(VisionPart, is_also_found_by_the_readers_of_encoders_and_projectors) {
  EXPECT_EQ(parse_hf_vision_config(llava, "c").value_or_throw(), part_of(llava).encoder);
  EXPECT_EQ(parse_hf_projector_config(smolvlm, "c").value_or_throw(), part_of(smolvlm).projector);
  for (const char* type : {"llava", "llava_onevision", "smolvlm", "idefics3"}) EXPECT_TRUE(has_vision_part(type));
  EXPECT_FALSE(has_vision_part("gemma3"));
}

}  // namespace
}  // namespace maestro
