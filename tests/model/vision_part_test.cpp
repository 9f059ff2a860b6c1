// SPDX-License-Identifier: Apache-2.0
// Vision encoders and projectors in config.json of vision-language models; defaults are recorded from transformers by
// record_vision_defaults.py.
#include "runtime/model/vision_part.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/core/input_file.hpp"
#include "runtime/model/hf_config.hpp"
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

// As published for Qwen/Qwen2.5-VL-3B-Instruct and Qwen/Qwen3-VL-2B-Instruct (relevant keys only).
constexpr std::string_view windowed = R"({
  "architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151645, "vision_start_token_id": 151652, "vision_end_token_id": 151653, "vision_token_id": 151654,
  "image_token_id": 151655, "video_token_id": 151656, "hidden_act": "silu", "hidden_size": 2048,
  "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 128000, "max_window_layers": 70,
  "model_type": "qwen2_5_vl", "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false,
  "vision_config": {"depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
    "in_chans": 3, "out_hidden_size": 2048, "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14,
    "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2, "temporal_patch_size": 2},
  "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vocab_size": 151936})";
constexpr std::string_view tapped = R"({
  "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655, "model_type": "qwen3_vl",
  "text_config": {"head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "model_type": "qwen3_vl_text",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"},
    "rope_theta": 5000000, "vocab_size": 151936}, "tie_word_embeddings": true, "video_token_id": 151656,
  "vision_config": {"deepstack_visual_indexes": [5, 11, 17], "depth": 24, "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 1024, "in_channels": 3, "initializer_range": 0.02, "intermediate_size": 4096,
    "model_type": "qwen3_vl", "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 2048,
    "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2},
  "vision_end_token_id": 151653, "vision_start_token_id": 151652})";
// Of OpenGVLab/InternVL3-1B-hf.
constexpr std::string_view internvl = R"({
  "architectures": ["InternVLForConditionalGeneration"], "downsample_ratio": 0.5, "image_seq_length": 256,
  "image_token_id": 151667, "model_type": "internvl", "projector_hidden_act": "gelu",
  "text_config": {"hidden_size": 896, "intermediate_size": 4864, "model_type": "qwen2", "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "vocab_size": 151674}, "torch_dtype": "bfloat16",
  "vision_config": {"attention_bias": true, "attention_dropout": 0.0, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
    "hidden_size": 1024, "image_size": [448, 448], "intermediate_size": 4096, "layer_norm_eps": 1e-06,
    "layer_scale_init_value": 0.1, "model_type": "internvl_vision", "norm_type": "layer_norm",
    "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 24, "patch_size": [14, 14],
    "projection_dropout": 0.0, "use_absolute_position_embeddings": true, "use_mask_token": false,
    "use_mean_pooling": true, "use_qk_norm": false}, "vision_feature_layer": -1,
  "vision_feature_select_strategy": "default"})";
// As published for google/gemma-3-4b-it and google/paligemma-3b-pt-224 (relevant keys only).
constexpr std::string_view gemma3 = R"({
  "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
  "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
  "model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
    "model_type": "gemma3_text", "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 1024},
  "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
    "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14,
    "vision_use_head": false}})";
constexpr std::string_view paligemma = R"({
  "architectures": ["PaliGemmaForConditionalGeneration"], "bos_token_id": 2, "eos_token_id": 1, "hidden_size": 2048,
  "ignore_index": -100, "image_token_index": 257152, "model_type": "paligemma", "pad_token_id": 0,
  "projection_dim": 2048, "text_config": {"hidden_size": 2048, "intermediate_size": 16384, "model_type": "gemma",
    "num_attention_heads": 8, "num_hidden_layers": 18, "num_image_tokens": 256, "num_key_value_heads": 1,
    "torch_dtype": "float32", "vocab_size": 257216},
  "torch_dtype": "float32", "vision_config": {"hidden_size": 1152, "intermediate_size": 4304,
    "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27, "num_image_tokens": 256,
    "patch_size": 14, "projection_dim": 2048, "projector_hidden_act": "gelu_fast", "vision_use_head": false}})";

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

TEST(VisionPart, of_a_qwen2_5_vl_has_windows_and_a_norm_before_blocks_are_joined) {
  const VisionPart part = part_of(windowed);
  VisionConfig encoder;
  encoder.layers = 32;
  encoder.width = 1280;
  encoder.heads = 16;
  encoder.ffn = 3420;
  encoder.patch = 14;
  encoder.stored = encoder.rms_norm = encoder.gated = encoder.fused_qkv = true;
  encoder.last_norm = encoder.patch_bias = false;
  encoder.positions = PatchPositions::none;
  encoder.activation = GeluKind::quick;
  encoder.rope_theta = 10000;
  encoder.times = 2;
  encoder.window = 8;
  encoder.full_layers = {7, 15, 23, 31};
  EXPECT_EQ(part.encoder, encoder);
  ProjectorConfig projector;
  projector.vision_width = 1280;
  projector.width = 2048;
  projector.join = 4;
  projector.hidden = 5120;
  projector.activation = GeluKind::erf;
  projector.norm = FeatureNorm::before_join;
  projector.rms_norm = true;
  EXPECT_EQ(part.projector, projector);
  EXPECT_EQ(part.image_token, 151655);
}

TEST(VisionPart, of_a_qwen3_vl_has_a_table_for_all_sizes_and_taps) {
  const VisionPart part = part_of(tapped);
  EXPECT_EQ(part.encoder.positions, PatchPositions::interpolated);
  EXPECT_EQ(part.encoder.columns, 48);
  EXPECT_EQ(part.encoder.max_patches, 2304);
  EXPECT_TRUE(part.encoder.patch_bias);
  EXPECT_EQ(part.encoder.taps, (std::vector<std::int64_t>{5, 11, 17}));
  EXPECT_EQ(part.projector.taps, 3);
  EXPECT_EQ(part.projector.hidden, 4096);
  EXPECT_FALSE(part.projector.rms_norm);
}

TEST(VisionPart, states_by_which_axis_the_decoders_pairs_turn) {
  const auto decoder = [](std::string_view text) { return parse_hf_config(text, "model/config.json"); };
  const DecoderConfig one = decoder(windowed).value_or_throw(), other = decoder(tapped).value_or_throw();
  EXPECT_EQ(one.rope_sections, (std::vector<std::int64_t>{16, 24, 24}));
  EXPECT_FALSE(one.rope_interleaved);
  EXPECT_EQ(other.rope_sections, (std::vector<std::int64_t>{24, 20, 20}));
  EXPECT_TRUE(other.rope_interleaved);
  EXPECT_TRUE(decoder(llava).value_or_throw().rope_sections.empty());
  const std::string absent = replaced(windowed, "{\"type\": \"mrope\", \"mrope_section\": [16, 24, 24]}", "null");
  EXPECT_EQ(decoder(absent).value_or_throw().rope_sections, one.rope_sections) << "its class's sections";
  const auto refusal = [&](std::string_view text) {
    const auto read = decoder(text);
    return read ? "accepted" : read.error().message;
  };
  EXPECT_THAT(refusal(replaced(windowed, "[16, 24, 24]", "[16, 24]")),
              HasSubstr("rope_scaling.mrope_section: expected numbers of pairs by time, row and column, got [16,24]"));
  EXPECT_THAT(refusal(replaced(windowed, "[16, 24, 24]", "[16, 24, 20]")),
              HasSubstr("mrope_section has 60 pairs of columns, but a head has 128 columns"));
  EXPECT_THAT(refusal(replaced(tapped, "\"mrope_interleaved\": true", "\"mrope_interleaved\": false")),
              HasSubstr("mrope_interleaved = false is not supported"));
  EXPECT_THAT(refusal(replaced(windowed, "\"type\": \"mrope\"", "\"type\": \"mrope\", \"mrope_interleaved\": true")),
              HasSubstr("mrope_interleaved = true is not supported"));
}

TEST(VisionPart, takes_absent_keys_of_native_encoders_from_their_classes) {  // VP-2
  const auto file = std::filesystem::path(MAESTRO_SOURCE_DIR) / "tests/model/references/vision_defaults.json";
  const json recorded = json::parse(read_text(file).value_or_throw());
  ASSERT_EQ(recorded["native"].size(), 6U);
  for (const json& each : recorded["native"]) {
    SCOPED_TRACE(each["config"].dump());
    const VisionPart part = part_of(each["config"].dump());
    const json& expected = each["expected"];
    EXPECT_EQ(part.encoder.layers, expected["depth"]);
    EXPECT_EQ(part.encoder.width, expected["width"]);
    EXPECT_EQ(part.encoder.heads, expected["num_heads"]);
    EXPECT_EQ(part.encoder.ffn, expected["ffn"]);
    EXPECT_EQ(part.encoder.patch, expected["patch_size"]);
    EXPECT_EQ(part.encoder.times, expected["temporal_patch_size"]);
    EXPECT_EQ(part.encoder.gated, expected["hidden_act"] == "silu");
    EXPECT_EQ(part.encoder.rope_theta, expected["rope_parameters"]["rope_theta"]);
    const std::int64_t side = expected["spatial_merge_size"], pixels = expected.value("window_size", 0);
    EXPECT_EQ(part.projector.join, side * side);
    EXPECT_EQ(part.encoder.window, pixels / side / part.encoder.patch * side);
    EXPECT_EQ(part.encoder.taps, expected.value("deepstack_visual_indexes", std::vector<std::int64_t>{}));
    EXPECT_EQ(part.encoder.max_patches, expected.value("num_position_embeddings", 0));
    std::vector<std::int64_t> full = expected.value("fullatt_block_indexes", std::vector<std::int64_t>{});
    std::erase_if(full, [&](std::int64_t layer) { return layer >= part.encoder.layers; });
    EXPECT_EQ(part.encoder.full_layers, full);
    EXPECT_EQ(part.image_token, expected["image_token"]);
  }
}

TEST(VisionPart, of_an_internvl_drops_class_rows_and_norms_joined_blocks) {
  const VisionPart part = part_of(internvl);
  VisionConfig encoder;
  encoder.layers = 24;
  encoder.width = 1024;
  encoder.heads = 16;
  encoder.ffn = 4096;
  encoder.patch = 14;
  encoder.max_patches = 1024;
  encoder.columns = 32;
  encoder.stored = encoder.class_row = encoder.whole_tiles = true;
  encoder.activation = GeluKind::erf;
  encoder.last_norm = false;
  encoder.branch_scale = 0.1;
  EXPECT_EQ(part.encoder, encoder);
  ProjectorConfig projector;
  projector.vision_width = 1024;
  projector.width = 896;
  projector.activation = GeluKind::erf;
  projector.join = 4;
  projector.tile_rows = 1025;
  projector.norm = FeatureNorm::after_join;
  projector.norm_epsilon = 1e-5;
  EXPECT_EQ(part.projector, projector);
  const std::string normed = replaced(internvl, "\"use_mean_pooling\": true", "\"use_mean_pooling\": false");
  EXPECT_TRUE(part_of(normed).encoder.last_norm);
  EXPECT_FALSE(part_of(replaced(normed, "_layer\": -1", "_layer\": -2")).encoder.last_norm);
  EXPECT_FALSE(part_of(replaced(normed, "_layer\": -1", "_layer\": 24")).encoder.last_norm)
      << "states of all layers are those before the norm";
}

TEST(VisionPart, of_a_gemma3_averages_blocks_and_norms_the_means) {
  const VisionPart part = part_of(gemma3);
  EXPECT_EQ(part.encoder.columns, 64);
  EXPECT_TRUE(part.encoder.last_norm);
  EXPECT_EQ(part.image_token, 262144);
  ProjectorConfig projector;
  projector.vision_width = 1152;
  projector.width = 2560;
  projector.pool = 16;
  projector.norm = FeatureNorm::before_join;
  projector.rms_norm = true;
  projector.norm_offset = 1;
  projector.products = 1;
  projector.biases = false;
  projector.transposed = true;
  EXPECT_EQ(part.projector, projector);
  const std::string other = replaced(gemma3, "\"patch_size\": 14", "\"layer_norm_eps\": 1e-5, \"patch_size\": 14");
  EXPECT_EQ(part_of(other).projector.norm_epsilon, 1e-5) << "as transformers takes it from the encoder";
  EXPECT_EQ(parse_hf_projector_config(hf_projector_config_text(projector), "c").value_or_throw(), projector);
  EXPECT_THAT(part_refusal(replaced(gemma3, "image\": 256", "image\": 255")),
              HasSubstr("mm_tokens_per_image: 255 is not the square of a divisor of the 64 patches"));
}

TEST(VisionPart, of_a_paligemma_is_one_product) {
  const VisionPart part = part_of(paligemma);
  EXPECT_EQ(part.encoder.columns, 16);
  EXPECT_TRUE(part.encoder.last_norm);
  EXPECT_EQ(part.image_token, 257152);
  ProjectorConfig projector;
  projector.vision_width = 1152;
  projector.width = 2048;
  projector.products = 1;
  EXPECT_EQ(part.projector, projector);
  EXPECT_THAT(part_refusal(replaced(paligemma, "\"projection_dim\": 2048, \"text", "\"projection_dim\": 1024, \"text")),
              HasSubstr("projection_dim: differs from the language model's width, 2048"));
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
    EXPECT_EQ(part.encoder.branch_scale, vision.value("layer_scale_init_value", 0.0));
    if (vision.contains("norm_type")) {
      EXPECT_EQ(part.encoder.rms_norm, vision["norm_type"] == "rms_norm");
      EXPECT_EQ(part.encoder.qkv_bias, vision["attention_bias"]);
      EXPECT_EQ(part.encoder.head_norms, vision["use_qk_norm"]);
      EXPECT_EQ(part.encoder.last_norm, !vision["use_mean_pooling"]);
      EXPECT_EQ(std::sqrt(static_cast<double>(part.projector.join)) * expected["downsample_ratio"].get<double>(), 1.0);
      EXPECT_EQ(part.projector.norm, FeatureNorm::after_join);
    }
    if (expected.contains("scale_factor")) {
      const std::int64_t factor = expected["scale_factor"];
      EXPECT_EQ(part.projector.join, factor * factor);
      continue;
    }
    EXPECT_EQ(part.projector.activation, kinds.at(expected["projector_hidden_act"]));
    EXPECT_EQ(part.projector.biases, expected.value("multimodal_projector_bias", true));
    EXPECT_EQ(part.projector.tile_rows > 0, expected["vision_feature_select_strategy"] == "default");
    EXPECT_EQ(part.most_tiles, expected.contains("vision_aspect_ratio") ? 9 : 0);
    if (!expected.contains("image_grid_pinpoints")) continue;
    std::vector<ImageCanvas> canvases;
    for (const json& pair : expected["image_grid_pinpoints"]) canvases.push_back({pair[0], pair[1]});
    EXPECT_EQ(part.canvases, canvases);
  }
}

TEST(VisionPart, refuses_every_unknown_key_by_name) {  // VP-1
  for (const std::string_view text : {llava, smolvlm, onevision, tapped, gemma3, paligemma}) {
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
  for (const char* key : {"multimodal_projector_bias", "scale_factor", "strange_scale"}) {
    EXPECT_THAT(part_refusal(with_key(internvl, "\"" + std::string(key) + "\": 2")), HasSubstr("is unknown here"));
  }
  EXPECT_THAT(part_refusal(replaced(llava, "\"patch_size\": 14", "\"patch_size\": 14, \"use_qk_norm\": true")),
              HasSubstr("vision_config.use_qk_norm = true is unknown here"));
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
  EXPECT_THAT(part_refusal(replaced(internvl, "[448, 448]", "[448, 224]")),
              HasSubstr("vision_config.image_size = [448,224] is not a square"));
  EXPECT_THAT(part_refusal(replaced(internvl, "\"use_mask_token\": false", "\"use_mask_token\": true")),
              HasSubstr("use_mask_token = true is not supported"));
  EXPECT_THAT(part_refusal(replaced(internvl, "_strategy\": \"default\"", "_strategy\": \"full\"")),
              HasSubstr("keeps class rows, which do not join"));
  EXPECT_THAT(part_refusal(replaced(internvl, "_ratio\": 0.5", "_ratio\": 0.3")),
              HasSubstr("downsample_ratio = 0.3 is not supported"));
  EXPECT_THAT(
      part_refusal(replaced(replaced(internvl, "use_qk_norm\": false", "use_qk_norm\": true"), "1e-06", "1e-05")),
      HasSubstr("layer_norm_eps = 1e-05 with use_qk_norm = true is not supported; only 1e-06 is"));
  EXPECT_THAT(part_refusal(replaced(onevision, "anyres_max_9", "anyres")), HasSubstr("only anyres_max_K is"));
  EXPECT_THAT(part_refusal(replaced(onevision, "[384, 768]", "[384]")), HasSubstr("expected a height and a width"));
  EXPECT_THAT(part_refusal(replaced(windowed, "\"window_size\": 112", "\"window_size\": 20")),
              HasSubstr("vision_config.window_size: smaller than a block of patches, 28 pixels"));
  EXPECT_THAT(part_refusal(replaced(windowed, "[7, 15, 23, 31]", "[7, 15, 32]")), HasSubstr("from 0 to 31"));
  EXPECT_THAT(part_refusal(replaced(windowed, "[7, 15, 23, 31]", "[7, 15, 15]")),
              HasSubstr("fullatt_block_indexes[2] = 15 is not above the layer before it"));
  EXPECT_THAT(part_refusal(replaced(windowed, "\"out_hidden_size\": 2048", "\"out_hidden_size\": 1024")),
              HasSubstr("out_hidden_size: 1024 differs from the language model's width, 2048"));
  EXPECT_THAT(part_refusal(replaced(windowed, "\"in_chans\": 3", "\"in_chans\": 4")), HasSubstr("only 3 is"));
  EXPECT_THAT(part_refusal(replaced(windowed, "\"vision_config\": {", "\"vision_config\": {\"strange\": 2, ")),
              HasSubstr("vision_config.strange = 2 is unknown here"));
  EXPECT_THAT(part_refusal(replaced(tapped, "2304", "2305")), HasSubstr("only a square number is"));
  EXPECT_THAT(part_refusal(replaced(tapped, "\"deepstack_visual_indexes\": [5, 11, 17], ", "")),
              HasSubstr("is absent, and its default, 8, 16, 24, is beyond the 24 layers"));
  EXPECT_THAT(part_refusal(replaced(tapped, "\"hidden_size\": 1024", "\"hidden_size\": 1032")),
              HasSubstr("num_heads: 16 heads divide the width 1032"));
}

TEST(VisionPart, is_also_found_by_the_readers_of_encoders_and_projectors) {
  EXPECT_EQ(parse_hf_vision_config(llava, "c").value_or_throw(), part_of(llava).encoder);
  EXPECT_EQ(parse_hf_projector_config(smolvlm, "c").value_or_throw(), part_of(smolvlm).projector);
  for (const char* type : {"llava", "llava_onevision", "smolvlm", "idefics3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl",
                           "internvl", "gemma3", "paligemma"}) {
    EXPECT_TRUE(has_vision_part(type));
  }
  EXPECT_EQ(parse_hf_projector_config(gemma3, "c").value_or_throw(), part_of(gemma3).projector);
  EXPECT_FALSE(has_vision_part("mllama"));
  EXPECT_FALSE(has_vision_part("qwen3_5"));  // its language model is read alone
  EXPECT_THAT(parse_hf_vision_config(R"({"model_type": "qwen3_5", "vision_config": {}})", "c").error().message,
              HasSubstr("model_type = \"qwen3_5\" is not supported"));
}

TEST(VisionPart, of_a_model_by_code_in_its_folder_is_refused_with_the_folder_to_use) {
  const std::string text = replaced(internvl, "\"internvl\"", "\"internvl_chat\"");
  for (const auto& message :
       {parse_hf_vision_config(text, "c").error().message, parse_hf_projector_config(text, "c").error().message}) {
    EXPECT_THAT(message, AllOf(HasSubstr("model_type = \"internvl_chat\" is a model by code in its folder"),
                               HasSubstr("OpenGVLab/InternVL3-1B-hf"), IsOneLine()));
  }
}

}  // namespace
}  // namespace maestro
