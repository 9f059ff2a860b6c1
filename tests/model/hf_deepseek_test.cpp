// SPDX-License-Identifier: Apache-2.0
// config.json of DeepSeek's families, and of families with its experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/hf_config.hpp"
#include "tests/model/config_text.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// As published for DeepSeek-V2-Lite, DeepSeek-V3 (without its quantisation), GLM-4.5-Air and dots.llm1 (relevant keys).
constexpr std::string_view v2_lite = R"({
  "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "aux_loss_alpha": 0.001, "bos_token_id": 100000,
  "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
  "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type": "deepseek_v2",
  "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
  "norm_topk_prob": false, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
  "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
  "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
  "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true, "tie_word_embeddings": false,
  "topk_group": 1, "topk_method": "greedy", "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128,
  "vocab_size": 102400})";
constexpr std::string_view v3 = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "ep_size": 1, "first_k_dense_replace": 3,
  "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432,
  "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
  "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
  "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
  "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
  "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
  "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": false, "topk_group": 4,
  "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128, "vocab_size": 129280})";
constexpr std::string_view glm = R"({
  "architectures": ["Glm4MoeForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 4096, "partial_rotary_factor": 0.5, "initializer_range": 0.02,
  "intermediate_size": 10944, "max_position_embeddings": 131072, "model_type": "glm4_moe",
  "moe_intermediate_size": 1408, "norm_topk_prob": true, "num_attention_heads": 96, "n_group": 1, "topk_group": 1,
  "n_routed_experts": 128, "n_shared_experts": 1, "routed_scaling_factor": 1.0, "num_experts_per_tok": 8,
  "first_k_dense_replace": 1, "num_hidden_layers": 46, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
  "rope_scaling": null, "rope_theta": 1000000, "num_nextn_predict_layers": 1, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "use_cache": true, "use_qk_norm": false, "vocab_size": 151552})";
constexpr std::string_view dots = R"({
  "architectures": ["Dots1ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "first_k_dense_replace": 1,
  "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 10944,
  "max_position_embeddings": 32768, "max_window_layers": 62, "model_type": "dots1", "moe_intermediate_size": 1408,
  "moe_layer_freq": 1, "n_routed_experts": 128, "n_shared_experts": 2, "norm_topk_prob": true,
  "num_attention_heads": 32, "num_experts_per_tok": 6, "num_hidden_layers": 62, "num_key_value_heads": 32,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000000,
  "routed_scaling_factor": 2.5, "scoring_func": "noaux_tc", "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 152064})";

DecoderConfig config_of(std::string_view text) {
  return parse_hf_config(text, "config.json").value_or_throw();
}

std::string refusal(std::string_view text, std::string_view from, std::string_view to) {
  const auto config = parse_hf_config(replaced(text, from, to), "config.json");
  if (config) return "accepted";
  EXPECT_THAT(config.error().message, IsOneLine());
  return config.error().message;
}

TEST(DeepseekConfig, reads_latents_and_experts_without_groups) {
  const DecoderConfig config = config_of(v2_lite);
  EXPECT_EQ(config.latent, (LatentConfig{512, 0, 64, 128, true}));
  EXPECT_EQ(config.head_size, 192);
  EXPECT_EQ(config.result_columns(), 16 * 128);
  EXPECT_EQ(config.rotated_columns(), 64);
  const ExpertConfig& experts = config.experts;
  EXPECT_EQ(experts.count, 64);
  EXPECT_EQ(experts.per_token, 6);
  EXPECT_EQ(experts.shared_ffn, 2 * 1408);
  EXPECT_FALSE(experts.shared_gate);
  EXPECT_FALSE(experts.score_bias);
  EXPECT_EQ(experts.dense_layers, std::vector<std::int64_t>{0});
  EXPECT_EQ(experts.router, (RouteOptions{.kind = RouterKind::softmax}));
  EXPECT_EQ(config.rope_scaling.score_slope, 0.707);
  EXPECT_EQ(config.rope_scaling.magnitude, 1);  // equal slopes
}

TEST(DeepseekConfig, reads_groups_of_experts) {
  const std::string limited =
      replaced(replaced(v2_lite, "\"greedy\"", "\"group_limited_greedy\""), "\"n_group\": 1", "\"n_group\": 8");
  EXPECT_EQ(config_of(limited).experts.router.groups, 8);
  const DecoderConfig config = config_of(v3);
  EXPECT_EQ(config.latent, (LatentConfig{512, 1536, 64, 128, true}));
  EXPECT_TRUE(config.experts.score_bias);
  EXPECT_EQ(config.experts.router,
            (RouteOptions{.kind = RouterKind::sigmoid, .scale = 2.5, .divided = true, .groups = 8, .top_groups = 4}));
  EXPECT_FALSE(config_of(replaced(v3, "\"ep_size\": 1", "\"rope_interleave\": false")).latent.interleaved);
}

TEST(DeepseekConfig, what_the_class_would_compute_otherwise_is_refused_by_name) {
  EXPECT_THAT(refusal(v2_lite, "\"norm_topk_prob\": false", "\"norm_topk_prob\": true"),
              HasSubstr("norm_topk_prob = true is not applied by transformers"));
  EXPECT_THAT(refusal(v2_lite, "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2"), HasSubstr("moe_layer_freq = 2"));
  EXPECT_THAT(refusal(v2_lite, "\"greedy\"", "\"noaux_tc\""), HasSubstr("topk_method = \"noaux_tc\""));
  EXPECT_THAT(refusal(v2_lite, "\"v_head_dim\": 128", "\"v_head_dim\": 194"), HasSubstr("v_head_dim: 194 is above"));
  EXPECT_THAT(refusal(v2_lite, "\"num_experts_per_tok\": 6,", ""), HasSubstr("num_experts_per_tok is missing"));
  EXPECT_THAT(refusal(v3, "\"num_key_value_heads\": 128", "\"num_key_value_heads\": 64"),
              HasSubstr("num_key_value_heads = 64 is not applied"));
  EXPECT_THAT(refusal(v3, "\"ep_size\": 1", "\"head_dim\": 128"), HasSubstr("head_dim = 128 is not applied"));
  EXPECT_THAT(refusal(v3, "\"n_group\": 8", "\"n_group\": 7"), HasSubstr("n_group: 7 does not cut"));
  EXPECT_THAT(refusal(v3, "\"ep_size\": 1", R"("quantization_config": {"quant_method": "fp8"})"),
              HasSubstr("quantization_config"));
  EXPECT_THAT(refusal(v3, "\"ep_size\": 1", "\"index_topk\": 2048"), HasSubstr("index_topk = 2048 is unknown here"));
}

TEST(DeepseekConfig, reads_glm_4_5) {
  const DecoderConfig config = config_of(glm);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.out_bias);
  EXPECT_EQ(config.qk_norm, QkNorm::none);
  EXPECT_EQ(config_of(replaced(glm, "\"use_qk_norm\": false", "\"use_qk_norm\": true")).qk_norm, QkNorm::head);
  EXPECT_EQ(config.rotated_columns(), 64);
  EXPECT_EQ(config_of(replaced(glm, "\"partial_rotary_factor\": 0.5, ", "")).rope_share, 0.5);
  EXPECT_EQ(config.experts.shared_ffn, 1408);
  EXPECT_EQ(config.experts.dense_layers, std::vector<std::int64_t>{0});
}

TEST(DeepseekConfig, reads_dots_and_its_windows) {
  EXPECT_EQ(config_of(dots).window, 0);
  EXPECT_EQ(config_of(dots).qk_norm, QkNorm::head);
  const std::string windows = replaced(replaced(dots, "\"sliding_window\": null", "\"sliding_window\": 512"),
                                       "\"max_window_layers\": 62", "\"max_window_layers\": 60");
  EXPECT_THAT(refusal(windows, "62, \"num_key", "62, \"num_key"),
              HasSubstr("use_sliding_window = false is not applied"));
  const DecoderConfig config = config_of(replaced(windows, "\"use_sliding_window\": false, ", ""));
  EXPECT_EQ(config.window, 512);
  EXPECT_FALSE(config.mixer_of(59).windowed);
  EXPECT_TRUE(config.mixer_of(60).windowed);
  EXPECT_THAT(refusal(dots, "\"n_shared_experts\": 2, ", ""), HasSubstr("n_shared_experts is missing"));
}

TEST(DeepseekConfig, layers_after_the_last_are_passed_over) {
  const DecoderConfig config = config_of(glm);
  EXPECT_TRUE(is_further_layer(config, "model.layers.46.eh_proj.weight"));
  EXPECT_TRUE(is_further_layer(config, "model.layers.100.mlp.experts.0.up_proj.weight"));
  EXPECT_FALSE(is_further_layer(config, "model.layers.45.mlp.gate.weight"));
  EXPECT_FALSE(is_further_layer(config, "model.layers.x"));
  EXPECT_FALSE(is_further_layer(config, "model.norm.weight"));
}

}  // namespace
}  // namespace maestro
