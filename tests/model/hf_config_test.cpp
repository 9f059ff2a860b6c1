// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/core/input_file.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/model/config_text.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// As published for the models gpt2 and TinyLlama-1.1B (relevant keys only).
constexpr std::string_view gpt2_text = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
  "n_positions": 1024, "vocab_size": 50257})";
constexpr std::string_view llama_text = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
  "intermediate_size": 5632, "max_position_embeddings": 2048, "model_type": "llama", "num_attention_heads": 32,
  "num_hidden_layers": 22, "num_key_value_heads": 4, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
  "tie_word_embeddings": false, "torch_dtype": "float32", "use_cache": true, "vocab_size": 32000})";

std::string refusal(std::string_view text) {
  const Result<DecoderConfig> config = parse_hf_config(text, "model/config.json");
  if (config) return "accepted";
  EXPECT_THAT(config.error().message, AllOf(HasSubstr("model/config.json"), IsOneLine()));
  EXPECT_EQ(config.error().code, ErrorCode::invalid_argument);
  return config.error().message;
}

TEST(HfConfig, reads_gpt2) {
  const Result<DecoderConfig> config = parse_hf_config(gpt2_text, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->family, DecoderFamily::gpt2);
  EXPECT_EQ(config->layers, 12);
  EXPECT_EQ(config->width, 768);
  EXPECT_EQ(config->heads, 12);
  EXPECT_EQ(config->ffn, 0);
  EXPECT_EQ(config->vocabulary, 50257);
  EXPECT_EQ(config->positions, 1024);
  EXPECT_TRUE(config->tied);
  EXPECT_EQ(config->norm_epsilon, 1e-5);
}

TEST(HfConfig, reads_llama) {
  const Result<DecoderConfig> config = parse_hf_config(llama_text, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->family, DecoderFamily::llama);
  EXPECT_EQ(config->layers, 22);
  EXPECT_EQ(config->width, 2048);
  EXPECT_EQ(config->heads, 32);
  EXPECT_EQ(config->kv_heads, 4);
  EXPECT_EQ(config->ffn, 5632);
  EXPECT_FALSE(config->tied);
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_EQ(config->norm_epsilon, 1e-5);
}

TEST(HfConfig, takes_the_rotary_base_from_either_place) {
  const auto theta = [](const std::string& to) {
    return parse_hf_config(replaced(llama_text, "\"rope_scaling\": null", to), "c").value_or_throw().rope_theta;
  };
  EXPECT_EQ(theta("\"rope_theta\": 500000.0"), 500000.0);
  EXPECT_EQ(theta(R"("rope_parameters": {"rope_type": "default", "rope_theta": 250000.0})"), 250000.0);
}

TEST(HfConfig, keys_that_change_nothing_are_passed_over) {
  const std::string more = R"("rope_scaling": {}, "bos_token_id": 1, "attention_dropout": 0.1, "_name_or_path": "x",
    "residual_multiplier": null, "mlp_bias": false, "rope_interleaved": false, "is_llama_config": true)";
  EXPECT_EQ(parse_hf_config(replaced(llama_text, "\"rope_scaling\": null", more), "c").value_or_throw(),
            parse_hf_config(llama_text, "c").value_or_throw());
}

// As saved by transformers 4 and 5; see also tests/sections/references.
TEST(HfConfig, scaled_positions_have_the_same_meaning_in_either_form) {
  const auto read = [](const std::string& to) {
    return parse_hf_config(replaced(llama_text, "\"rope_scaling\": null", to), "c").value_or_throw();
  };
  const std::string factors = R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024)";
  const DecoderConfig four = read(R"("rope_theta": 5e5, "rope_scaling": {"type": "llama3", )" + factors + "}");
  EXPECT_EQ(four, read(R"("rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, )" + factors + "}"));
  EXPECT_EQ(four.rope_scaling.kind, RotaryScaling::Kind::llama3);
  EXPECT_EQ(four.rope_scaling.factor, 8);
  EXPECT_EQ(four.rope_scaling.original, 1024);
}

TEST(HfConfig, absent_keys_have_the_defaults_of_the_family) {
  const auto read = [](const std::string& type, const std::string& more) {
    const std::string named = replaced(llama_text, "\"llama\"", "\"" + type + "\"");
    return parse_hf_config(replaced(named, "\"rope_scaling\": null", more), "c").value_or_throw();
  };
  EXPECT_EQ(read("mistral", R"("x": null)").window, 4096);
  EXPECT_EQ(read("mistral", R"("sliding_window": null)").window, 0);
  EXPECT_EQ(read("phi3", R"("x": null)").window, 0);
  EXPECT_EQ(read("qwen3", R"("x": null)").head_size, 128);
  EXPECT_EQ(read("qwen2", R"("sliding_window": 64)").window, 0);
  const DecoderConfig qwen =
      read("qwen2", R"("sliding_window": 64, "use_sliding_window": true, "max_window_layers": 20)");
  EXPECT_FALSE(qwen.mixer_of(19).windowed);
  EXPECT_TRUE(qwen.mixer_of(20).windowed);
  const DecoderConfig gemma = read("gemma3_text", R"("head_dim": 64)");
  EXPECT_FALSE(gemma.mixer_of(5).windowed);
  EXPECT_TRUE(gemma.mixer_of(6).windowed);
  EXPECT_EQ(gemma.local_rope_theta, 10000);
  EXPECT_EQ(gemma.attention_scale, 1.0 / 16);
  EXPECT_FALSE(read("smollm3", R"("x": null)").mixer_of(3).rotary);
  const DecoderConfig first = read("gemma", R"("x": null)");
  EXPECT_EQ(first.head_size, 256);
  EXPECT_EQ(first.norms, BlockNorms::before);
  EXPECT_EQ(first.norm_offset, 1);
}

// As published for gpt-oss-20b (relevant keys only).
constexpr std::string_view gpt_oss_text = R"({
  "architectures": ["GptOssForCausalLM"], "attention_bias": true, "experts_per_token": 4, "head_dim": 64,
  "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096, "intermediate_size": 2880,
  "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4,
  "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": false,
  "quantization_config": {"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"}, "rms_norm_eps": 1e-05,
  "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
  "rope_type": "yarn", "truncate": false}, "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128,
  "swiglu_limit": 7.0, "tie_word_embeddings": false, "vocab_size": 201088})";

TEST(HfConfig, reads_gpt_oss) {
  const DecoderConfig config = parse_hf_config(gpt_oss_text, "config.json").value_or_throw();
  EXPECT_TRUE(config.qkv_bias && config.out_bias && config.attention_sinks && config.experts.biases);
  EXPECT_EQ(config.experts.count, 32);
  EXPECT_EQ(config.experts.per_token, 4);
  EXPECT_EQ(config.experts.ffn, 2880);
  EXPECT_EQ(config.experts.gate_limit, 7);
  EXPECT_EQ(config.experts.gate_alpha, 1.702);
  EXPECT_EQ(config.experts.router.kind, RouterKind::chosen);
  EXPECT_EQ(config.head_size, 64);
  EXPECT_EQ(config.window, 128);
  EXPECT_TRUE(config.mixer_of(0).windowed);
  EXPECT_FALSE(config.mixer_of(1).windowed);
  EXPECT_FALSE(config.rope_scaling.truncate);
  const auto changed = [](const char* from, const char* to) { return replaced(gpt_oss_text, from, to); };
  // Without rotary settings the class has these.
  const std::string plain = changed(R"("rope_scaling")", R"("rope_scaling": null, "_x")");
  EXPECT_EQ(parse_hf_config(plain, "config.json").value_or_throw(), config);
  EXPECT_THAT(refusal(changed(R"("experts_per_token": 4)", R"("experts_per_token": 2)")),
              HasSubstr("contradicts num_experts_per_tok = 4"));
  EXPECT_THAT(refusal(changed(R"("initial_context_length": 4096)", R"("initial_context_length": 2048)")),
              HasSubstr("contradicts original_max_position_embeddings = 4096"));
  EXPECT_THAT(refusal(changed(R"("mxfp4"})", R"("mxfp4", "bits": 3})")), HasSubstr("bits"));
  EXPECT_THAT(refusal(changed(R"("mxfp4")", R"("fp8")")), HasSubstr("quant_method"));
  EXPECT_THAT(refusal(changed(R"("hidden_act": "silu")", R"("hidden_act": "gelu")")), HasSubstr("hidden_act"));
}

TEST(HfConfig, what_is_written_reads_back_as_the_same_model) {
  DecoderConfig gpt2;
  gpt2.layers = 3;
  gpt2.tied = false;
  gpt2.norm_epsilon = 3e-6;
  DecoderConfig llama = gpt2;
  llama.family = DecoderFamily::llama;
  llama.kv_heads = 2;
  llama.ffn = 320;
  llama.rope_theta = 12345.5;
  for (const DecoderConfig& config : {gpt2, llama}) {
    const std::string text = hf_config_text(config);
    const DecoderConfig back = parse_hf_config(text, "config.json").value_or_throw();
    EXPECT_EQ(hf_config_text(back), text);
    EXPECT_EQ(back.family, config.family);
    EXPECT_EQ(back.layers, 3);
    EXPECT_EQ(back.kv_heads, config.kv_heads);
    EXPECT_EQ(back.ffn, config.ffn);
    EXPECT_EQ(back.tied, false);
    EXPECT_EQ(back.norm_epsilon, 3e-6);
    EXPECT_EQ(back.init_std, config.init_std);
    EXPECT_EQ(back.vocabulary, config.vocabulary);
    EXPECT_EQ(back.positions, config.positions);
  }
}

TEST(HfConfig, the_default_llama_width_of_the_feed_forward_is_eight_thirds_rounded_up_to_64) {
  DecoderConfig config;
  config.family = DecoderFamily::llama;
  for (const auto& [width, ffn] : {std::pair{128, 384}, {192, 512}, {4096, 10944}}) {
    config.width = width;
    EXPECT_EQ(parse_hf_config(hf_config_text(config), "c").value_or_throw().ffn, ffn) << width;
  }
}

TEST(HfConfig, errors_name_the_key) {
  EXPECT_THAT(refusal(replaced(gpt2_text, "\"n_layer\"", "\"layers\"")), HasSubstr("n_layer is missing"));
  EXPECT_THAT(refusal(replaced(gpt2_text, "\"n_embd\": 768", "\"n_embd\": \"768\"")),
              HasSubstr("n_embd: expected a whole number from 1 to 2147483648, got \"768\""));
  EXPECT_THAT(refusal(replaced(gpt2_text, "50257", "18446744073709551615")),
              HasSubstr("vocab_size: expected a whole number"));
  EXPECT_THAT(refusal(replaced(gpt2_text, "\"n_head\": 12", "\"n_head\": 0")),
              HasSubstr("n_head: expected a whole number from 1"));
  EXPECT_THAT(refusal(replaced(gpt2_text, "\"n_head\": 12", "\"n_head\": 7")), HasSubstr("n_head: 7 does not divide"));
  EXPECT_THAT(refusal(replaced(gpt2_text, "1e-05", "-1")),
              HasSubstr("layer_norm_epsilon: expected a number above 0, got -1"));
  EXPECT_THAT(refusal(replaced(llama_text, "\"num_key_value_heads\": 4", "\"num_key_value_heads\": 5")),
              HasSubstr("num_key_value_heads: 5 does not divide"));
  EXPECT_THAT(refusal(replaced(llama_text, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 0")),
              HasSubstr("tie_word_embeddings: expected true or false, got 0"));
}

TEST(HfConfig, variants_that_would_be_computed_wrongly_are_refused) {
  EXPECT_THAT(refusal(replaced(gpt2_text, "gelu_new", "gelu")),
              HasSubstr("activation_function = \"gelu\" is not supported"));
  EXPECT_THAT(refusal(replaced(gpt2_text, "\"n_ctx\": 1024", "\"scale_attn_by_inverse_layer_idx\": true")),
              HasSubstr("scale_attn_by_inverse_layer_idx = true"));
  const std::vector<std::pair<std::string, std::string>> changes{
      {R"("rope_scaling": {"type": "dynamic", "factor": 2.0})", "rope_scaling.type = \"dynamic\" is not"},
      {R"("rope_scaling": {"type": "linear", "factor": 2.0, "mrope_section": [1]})", "rope_scaling.mrope_section ="},
      {R"("rope_scaling": {"type": "llama3", "low_freq_factor": 4.0, "factor": 2.0})", "must be above low_freq_factor"},
      {R"("is_causal": false)", "is_causal = false is not supported"},
      {R"("residual_multiplier": 0.22)", "residual_multiplier = 0.22 is unknown here"},
      {R"("num_local_experts": 8)", "num_local_experts: a mixture of experts is only supported in olmoe, qwen2_moe"},
      {R"("head_dim": 63)", "head_dim: 63 is odd"},
      {R"("quantization_config": {"bits": 4})", "quantization_config = {\"bits\":4} is not supported"}};
  for (const auto& [change, complaint] : changes) {
    EXPECT_THAT(refusal(replaced(llama_text, "\"rope_scaling\": null", change)), HasSubstr(complaint));
  }
}

/// Returns the text of a family, computed in transformers with complete heads, flat rotary settings and no caps.
std::string of_family(const std::string& type, const std::string& more) {
  return replaced(replaced(llama_text, "\"llama\"", "\"" + type + "\""), "\"rope_scaling\": null", more);
}

// As transformers 5.24 reads these keys.
TEST(HfConfig, a_key_that_the_class_of_the_family_passes_over_is_refused_by_name) {
  const auto refused = [](const std::string& type, const std::string& more) { return refusal(of_family(type, more)); };
  for (const char* type :
       {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "olmo2", "smollm3"}) {
    EXPECT_THAT(refused(type, R"("partial_rotary_factor": 0.5)"),
                AllOf(HasSubstr("partial_rotary_factor: 0.5 is not applied by transformers' "),
                      HasSubstr("ForCausalLM, which rotates complete heads; remove it")))
        << type;
    EXPECT_EQ(refused(type, R"("partial_rotary_factor": 1.0)"), "accepted") << type;
  }
  EXPECT_THAT(refused("llama", R"("rope_parameters": {"partial_rotary_factor": 0.5})"),
              HasSubstr("partial_rotary_factor: 0.5 is not applied by transformers' LlamaForCausalLM"));
  EXPECT_EQ(refused("phi3", R"("partial_rotary_factor": 0.75)"), "accepted");
  EXPECT_THAT(refused("phi3", R"("partial_rotary_factor": 0.01)"), HasSubstr("makes 0 of 64 columns rotate"));
  EXPECT_THAT(
      refused("gemma3_text", R"("attn_logit_softcapping": 50.0)"),
      HasSubstr("attn_logit_softcapping = 50.0 is not applied by transformers' Gemma3ForCausalLM; set it to null"));
  EXPECT_EQ(refused("gemma3_text", R"("attn_logit_softcapping": null, "final_logit_softcapping": 30.0)"), "accepted");
  EXPECT_EQ(refused("gemma2", R"("attn_logit_softcapping": 50.0)"), "accepted");
  EXPECT_THAT(refused("smollm3", R"("layer_types": ["sliding_attention"])"), HasSubstr("a list of full_attention"));
  std::string windowed = R"("layer_types": ["sliding_attention")";
  for (int layer = 1; layer < 22; ++layer) windowed += R"(, "full_attention")";
  EXPECT_THAT(refused("qwen3", windowed + "]"), HasSubstr("needs a sliding_window of the layers"));
}

TEST(HfConfig, rotary_settings_are_read_where_the_class_reads_them) {
  const auto refused = [](const std::string& type, const std::string& more) { return refusal(of_family(type, more)); };
  const std::string entries = R"({"full_attention": {"rope_theta": 5e5}, "sliding_attention": {"rope_theta": 1e4}})";
  EXPECT_EQ(refused("gemma3_text", "\"rope_parameters\": " + entries), "accepted");
  for (const char* type : {"llama", "qwen2", "gemma", "gemma2", "smollm3", "lfm2"}) {
    EXPECT_THAT(refused(type, "\"rope_parameters\": " + entries),
                HasSubstr("rope_parameters.full_attention = {\"rope_theta\":500000.0} is not applied by transformers'"))
        << type;
  }
  EXPECT_THAT(refused("gemma3_text", R"("rope_parameters": {"rope_type": "linear", "factor": 8.0})"),
              HasSubstr("rope_parameters.factor = 8.0 is not applied by transformers' Gemma3ForCausalLM"));
  EXPECT_EQ(refused("gemma3_text", R"("rope_scaling": {"rope_type": "linear", "factor": 8.0})"), "accepted");
  EXPECT_THAT(refused("gemma3_text", "\"rope_scaling\": " + entries), HasSubstr("rope_scaling.full_attention"));
  const std::string two = R"("rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": )";
  EXPECT_EQ(refused("llama", two + R"({"type": "linear", "factor": 2.0})"), "accepted");
  EXPECT_THAT(refused("llama", two + R"({"rope_type": "default"})"),
              HasSubstr("rope_parameters: it differs from rope_scaling"));
}

TEST(HfConfig, phi3_takes_its_original_positions_from_the_top) {
  const std::string factors = [] {
    std::string list;
    for (int pair = 0; pair < 32; ++pair) list += pair == 0 ? "1.0" : ", 1.0";
    return R"("short_factor": [)" + list + R"(], "long_factor": [)" + list + "]";
  }();
  const auto longrope = [&](const std::string& inside, const std::string& top) {
    return of_family("phi3", R"("rope_scaling": {"type": "longrope", )" + inside + factors + "}" + top);
  };
  const auto original = [&](const std::string& inside, const std::string& top) {
    return parse_hf_config(longrope(inside, top), "c").value_or_throw().rope_scaling.original;
  };
  const std::string top = R"(, "original_max_position_embeddings": 512)";
  EXPECT_EQ(original("", ""), 4096) << "the class's default";
  EXPECT_EQ(original("", top), 512);
  EXPECT_EQ(original(R"("original_max_position_embeddings": 512, )", top), 512);
  EXPECT_THAT(refusal(longrope(R"("original_max_position_embeddings": 512, )", "")),
              HasSubstr("original_max_position_embeddings = 512 is not applied by transformers' Phi3ForCausalLM"));
  EXPECT_THAT(refusal(of_family("phi3", R"("rope_scaling": {"type": "linear", "factor": 2.0})")),
              HasSubstr("rope_scaling.type = \"linear\" is not applied by transformers' Phi3ForCausalLM"));
}

// As published for LFM2-1.2B.
constexpr std::string_view lfm2_text = R"({
  "architectures": ["Lfm2ForCausalLM"], "block_auto_adjust_ff_dim": true, "block_dim": 2048, "block_ff_dim": 12288,
  "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0, "block_multiple_of": 256, "block_norm_eps": 1e-05,
  "block_out_init_scale": 1.0, "block_use_swiglu": true, "block_use_xavier_init": true, "bos_token_id": 1,
  "conv_L_cache": 3, "conv_bias": false, "conv_dim": 2048, "conv_dim_out": 2048, "conv_use_xavier_init": true,
  "eos_token_id": 7, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "hidden_size": 2048, "initializer_range": 0.02,
  "max_position_embeddings": 128000, "model_type": "lfm2", "norm_eps": 1e-05, "num_attention_heads": 32,
  "num_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pad_token_id": 0, "rope_theta": 1000000.0,
  "torch_dtype": "bfloat16", "use_cache": true, "use_pos_enc": true, "vocab_size": 65536})";

std::string types_of(const std::string& kinds) {
  std::string list;
  for (const char kind : kinds) {
    list += std::string(list.empty() ? "" : ", ") + (kind == 'c' ? "\"conv\"" : "\"full_attention\"");
  }
  return "\"layer_types\": [" + list + "]";
}

TEST(HfConfig, reads_lfm2) {
  const DecoderConfig config = parse_hf_config(lfm2_text, "c").value_or_throw();
  EXPECT_EQ(config.family, DecoderFamily::lfm2);
  EXPECT_EQ(config.ffn, 8192);
  EXPECT_EQ(config.conv_width, 3);
  EXPECT_FALSE(config.conv_bias);
  EXPECT_EQ(config.qk_norm, QkNorm::head);
  EXPECT_TRUE(config.tied);
  EXPECT_EQ(config.rope_theta, 1e6);
  for (std::int64_t layer = 0; layer < 16; ++layer) {
    const bool attention = layer == 2 || layer == 5 || (layer >= 8 && layer % 2 == 0);
    EXPECT_EQ(config.mixer_of(layer).kind == MixerKind::attention, attention) << layer;
  }
  EXPECT_EQ(parse_hf_config(hf_config_text(config), "c").value_or_throw(), config);
  const auto read = [](const std::string& from, const std::string& to) {
    return parse_hf_config(replaced(lfm2_text, from, to), "c").value_or_throw();
  };
  const std::string list = R"("full_attn_idxs": [2, 5, 8, 10, 12, 14])";
  EXPECT_EQ(read(list, types_of("ccaccaccacacacac")), config);
  EXPECT_EQ(read(list, list + ", " + types_of("ccaccaccacacacac")), config);
  EXPECT_TRUE(read(list, R"("full_attn_idxs": null)").mixers.empty()) << "all layers have attention";
  EXPECT_EQ(read(R"("block_auto_adjust_ff_dim": true)", R"("block_auto_adjust_ff_dim": false)").ffn, 12288);
  EXPECT_EQ(read(R"("block_ffn_dim_multiplier": 1.0)", R"("block_ffn_dim_multiplier": 1.3)").ffn, 10752);
  EXPECT_EQ(read(R"("block_ffn_dim_multiplier": 1.0)", R"("block_ffn_dim_multiplier": null)").ffn, 8192);
  EXPECT_EQ(read("\"block_ff_dim\"", "\"intermediate_size\""), config);
  EXPECT_FALSE(read("\"pad_token_id\": 0", "\"tie_embedding\": false").tied);
}

TEST(HfConfig, an_lfm2_that_the_class_would_compute_otherwise_is_refused_by_name) {
  const auto refused = [](const std::string& from, const std::string& to) {
    return refusal(replaced(lfm2_text, from, to));
  };
  const std::string list = R"("full_attn_idxs": [2, 5, 8, 10, 12, 14])", more = "\"pad_token_id\": 0";
  EXPECT_THAT(refused(list, R"("full_attn_idxs": [16])"),
              HasSubstr("full_attn_idxs[0]: expected a whole number from 0"));
  EXPECT_THAT(refused(list, list + ", " + types_of("aaaccaccacacacac")), HasSubstr("contradicts layer_types"));
  EXPECT_THAT(refused(list, types_of("ccacc")), HasSubstr("layer_types: expected a list of 16 names"));
  EXPECT_THAT(refused(list, replaced(types_of("ccaccaccacacacac"), "full_attention", "sliding_attention")),
              HasSubstr("layer_types[2] = \"sliding_attention\" is not supported; these are: conv, full_attention"));
  EXPECT_THAT(refused(more, R"("intermediate_size": 8192)"),
              HasSubstr("intermediate_size = 8192 contradicts block_ff_dim"));
  EXPECT_THAT(refused(more, R"("tie_embedding": false, "tie_word_embeddings": true)"),
              HasSubstr("tie_embedding = false contradicts tie_word_embeddings"));
  for (const char* multiplier : {"1e300", "1e-300"}) {
    EXPECT_THAT(
        refused(R"("block_ffn_dim_multiplier": 1.0)", R"("block_ffn_dim_multiplier": )" + std::string(multiplier)),
        HasSubstr("block_auto_adjust_ff_dim: makes "));
  }
  EXPECT_THAT(refused(R"("conv_dim": 2048)", R"("conv_dim": 1024)"), HasSubstr("conv_dim = 1024 is not supported"));
  EXPECT_THAT(refused(R"("num_heads": 32)", R"("num_heads": 16)"), HasSubstr("num_heads = 16 is not supported"));
  EXPECT_THAT(refused(R"("block_norm_eps": 1e-05)", R"("block_norm_eps": 1e-06)"), HasSubstr("contradicts norm_eps"));
  EXPECT_THAT(refused(more, R"("theta": 1e4)"), HasSubstr("theta = 10000.0 contradicts rope_theta"));
  EXPECT_THAT(refused(R"("block_use_swiglu": true)", R"("block_use_swiglu": false)"), HasSubstr("only true is"));
  EXPECT_THAT(refused(R"("use_pos_enc": true)", R"("use_pos_enc": false)"), HasSubstr("only true is"));
  EXPECT_THAT(refused(more, R"("hidden_act": "gelu")"), HasSubstr("hidden_act = \"gelu\" is not supported"));
  EXPECT_THAT(refused(more, R"("rms_norm_eps": 1e-6)"), HasSubstr("rms_norm_eps = 1e-06 is unknown here"));
  EXPECT_THAT(refused(more, R"("attention_bias": true)"), HasSubstr("attention_bias = true is not supported"));
  EXPECT_THAT(refused(more, R"("num_experts": 32)"), HasSubstr("mixture of experts"));
  EXPECT_THAT(refused(more, R"("partial_rotary_factor": 0.5)"),
              HasSubstr("is not applied by transformers' Lfm2ForCausalLM"));
}

TEST(HfConfig, layers_beyond_any_model_are_refused_before_they_take_memory) {
  for (const char* layers : {"10001", "1000000", "2147483648"}) {
    const std::string wanted = ": expected a whole number from 1 to 10000, got " + std::string(layers);
    EXPECT_THAT(
        refusal(replaced(llama_text, "\"num_hidden_layers\": 22", std::string("\"num_hidden_layers\": ") + layers)),
        HasSubstr("num_hidden_layers" + wanted));
    EXPECT_THAT(refusal(replaced(gpt2_text, "\"n_layer\": 12", std::string("\"n_layer\": ") + layers)),
                HasSubstr("n_layer" + wanted));
  }
}

TEST(HfConfig, values_that_stand_under_two_names_must_agree) {
  const auto heads = [](const std::string& to) { return replaced(gpt2_text, "\"n_head\": 12", to); };
  EXPECT_EQ(parse_hf_config(heads("\"num_attention_heads\": 12"), "c").value_or_throw().heads, 12);
  EXPECT_TRUE(parse_hf_config(heads("\"n_head\": 12, \"num_attention_heads\": 12"), "c").ok());
  EXPECT_THAT(refusal(heads("\"n_head\": 12, \"num_attention_heads\": 6")),
              HasSubstr("n_head = 12 contradicts num_attention_heads = 6"));
  const auto rope = [](const std::string& to) { return replaced(llama_text, "\"rope_scaling\": null", to); };
  EXPECT_TRUE(parse_hf_config(rope(R"("rope_theta": 5e5, "rope_parameters": {"rope_theta": 500000.0})"), "c").ok());
  EXPECT_THAT(refusal(rope(R"("rope_theta": 10000.0, "rope_parameters": {"rope_theta": 500000.0})")),
              HasSubstr("rope_parameters.rope_theta = 500000.0 contradicts rope_theta = 10000.0"));
  EXPECT_THAT(refusal(rope(R"("rope_scaling": {"rope_theta": 1e3}, "rope_parameters": {"rope_theta": 2e3})")),
              HasSubstr("rope_parameters.rope_theta = 2000.0 contradicts rope_scaling.rope_theta = 1000.0"));
}

TEST(HfConfig, an_unknown_model_type_names_the_supported_ones) {
  EXPECT_THAT(refusal(replaced(gpt2_text, "\"model_type\": \"gpt2\"", "\"model_type\": \"bert\"")),
              AllOf(HasSubstr("model_type = \"bert\""), HasSubstr("gpt2, llama, mistral, qwen2")));
  EXPECT_THAT(refusal("{}"), HasSubstr("model_type is missing"));
}

TEST(HfConfig, a_multimodal_model_is_refused_with_the_way_to_its_language_model) {
  EXPECT_THAT(refusal(R"({"model_type": "aya_vision", "vision_config": {}, "text_config": {"model_type": "llama"}})"),
              HasSubstr("model_type = \"aya_vision\" is a multimodal model, and a decoder reads a language model: save "
                        "its language model (\"llama\") in a separate folder, as docs/models.md shows, and name it"));
  EXPECT_THAT(refusal(R"({"model_type": "aya_vision", "text_config": {"hidden_size": 8}})"),
              HasSubstr("its language model in"));
  for (const char* unsupported : {R"({"model_type": "mllama", "vision_config": {}})",
                                  R"({"model_type": "mllama", "text_config": {"model_type": 3}})"}) {
    EXPECT_THAT(refusal(unsupported),
                AllOf(HasSubstr("and its language model"), HasSubstr("is not supported; these are: gpt2")));
  }
}

TEST(HfConfig, an_unknown_activation_names_those_of_the_family_with_its_own_first) {
  const auto refused = [](const std::string& family, const std::string& key) {
    return refusal("{\"model_type\": \"" + family + R"(", "num_hidden_layers": 1, "hidden_size": 8,
      "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 8, ")" +
                   key + "\": \"gelu\"}");
  };
  for (const char* gemma : {"gemma2", "gemma3_text"}) {
    EXPECT_THAT(
        refused(gemma, "hidden_activation"),
        HasSubstr(
            "hidden_activation = \"gelu\" is not supported; these are: gelu_pytorch_tanh, gelu_new, gelu_fast, silu"));
  }
  EXPECT_THAT(refused("gemma", "hidden_act"), HasSubstr("vocab_size")) << "gelu is the approximation by tanh";
  EXPECT_THAT(refused("llama", "hidden_act"),
              HasSubstr("hidden_act = \"gelu\" is not supported; these are: silu, swish"));
}

TEST(HfConfig, text_that_is_no_json_object_is_refused) {
  EXPECT_THAT(refusal("{\"model_type\": "), HasSubstr("not valid JSON: parse error at column 16"));
  EXPECT_THAT(refusal("[]"), HasSubstr("expected an object, got []"));
}

TEST(HfConfig, hostile_values_are_one_short_line_with_file_and_key) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string key : {"model_type", "vocab_size", "tie_word_embeddings", "activation_function", "n_inner"}) {
    EXPECT_THAT(refusal("{\"" + key + "\": " + deep + "}"), HasSubstr(": " + key + "[0][0]")) << key;
    EXPECT_THAT(refusal("{\"" + key + "\": 1e999}"), HasSubstr(": " + key + ": the number 1e999 at byte")) << key;
    EXPECT_THAT(refusal("{\"" + key + "\": " + std::string(400, '9') + "}"), HasSubstr("is out of range")) << key;
  }
  const std::string wide = "\"hidden_act\": \"a\\nb" + std::string(5000, 'x') + "\"";
  const std::string told = refusal(replaced(llama_text, "\"hidden_act\": \"silu\"", wide));
  EXPECT_THAT(told, AllOf(HasSubstr("hidden_act = \"a\\nbxxx"),
                          HasSubstr("these are: silu, swish, gelu_pytorch_tanh, gelu_new, gelu_fast")));
  EXPECT_LT(told.size(), 400u);
}

TEST(HfConfig, reads_the_config_of_a_folder_and_names_it_when_missing) {
  const TempFolder folder;
  EXPECT_THAT(read_hf_config(folder.path()).error().message, HasSubstr("config.json: No such file"));
  folder.write("config.json", gpt2_text);
  EXPECT_TRUE(read_hf_config(folder.path()).ok());
  EXPECT_TRUE(read_hf_config(folder.path() / "config.json").ok());
}

/// A published text_config with the keys that its class does not read, and fewer layers.
constexpr std::string_view qwen3_5_text = R"({
  "attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true, "dtype": "bfloat16",
  "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 1024,
  "initializer_range": 0.02, "intermediate_size": 3584,
  "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention"],
  "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 16,
  "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144,
  "mlp_only_layers": [], "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1,
  "mtp_use_dedicated_embeddings": false, "num_attention_heads": 8, "num_hidden_layers": 5, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-06, "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
  "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"}, "tie_word_embeddings": true,
  "use_cache": true, "vocab_size": 248320})";

TEST(HfConfig, reads_qwen3_5) {
  const DecoderConfig config = parse_hf_config(qwen3_5_text, "c").value_or_throw();
  EXPECT_EQ(config.family, DecoderFamily::qwen3_5_text);
  EXPECT_EQ(config.delta, (DeltaShape{16, 16, 128, 128}));
  EXPECT_EQ(config.conv_width, 4);
  EXPECT_TRUE(config.output_gate);
  EXPECT_EQ(config.norm_offset, 1);
  EXPECT_EQ(config.qk_norm, QkNorm::head);
  EXPECT_EQ(config.rope_share, 0.25);
  EXPECT_EQ(config.rope_theta, 1e7);
  for (std::int64_t layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(config.mixer_of(layer).kind == MixerKind::attention, layer == 3) << layer;
  }
  EXPECT_EQ(parse_hf_config(hf_config_text(config), "c").value_or_throw(), config);
  const auto read = [](const std::string& from, const std::string& to) {
    return parse_hf_config(replaced(qwen3_5_text, from, to), "c").value_or_throw();
  };
  EXPECT_EQ(
      read(R"(["linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention"])",
           "null"),
      config);
  EXPECT_EQ(read("\"partial_rotary_factor\": 0.25, ", ""), config);
  const DecoderConfig turned = read("\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 1.0");
  EXPECT_EQ(turned.rope_share, 1);
  EXPECT_EQ(parse_hf_config(hf_config_text(turned), "c").value_or_throw(), turned);
}

TEST(HfConfig, a_qwen3_5_that_the_class_would_compute_otherwise_is_refused_by_name) {
  const auto refused = [](const std::string& from, const std::string& to) {
    return refusal(replaced(qwen3_5_text, from, to));
  };
  EXPECT_THAT(refused("[\"linear_attention\"", "[\"sliding_attention\""),
              HasSubstr("layer_types[0] = \"sliding_attention\" is not supported; these are: linear_attention, "
                        "full_attention"));
  EXPECT_THAT(refused("\"linear_num_value_heads\": 16", "\"linear_num_value_heads\": 24"),
              HasSubstr("linear_num_value_heads: 24 is not a multiple of linear_num_key_heads = 16"));
  EXPECT_THAT(refused("\"attn_output_gate\": true", "\"attn_output_gate\": false"), HasSubstr("only true is"));
  EXPECT_THAT(refused("\"float32\"", "\"bfloat16\""), HasSubstr("mamba_ssm_dtype = \"bfloat16\" is not supported"));
  EXPECT_THAT(refused("\"silu\"", "\"gelu\""), HasSubstr("hidden_act = \"gelu\" is not supported"));
  EXPECT_THAT(refused("\"mlp_only_layers\": []", "\"num_experts\": 32"), HasSubstr("mixture of experts"));
  EXPECT_THAT(refused("\"mlp_only_layers\": []", "\"linear_scale\": 2"), HasSubstr("linear_scale = 2 is unknown here"));
}

TEST(HfConfig, the_documentation_has_a_row_for_every_family) {
  const std::string page = read_text(std::filesystem::path(MAESTRO_SOURCE_DIR) / "docs/models.md").value_or_throw();
  for (const std::string_view family : decoder_family_names) {
    EXPECT_THAT(page, HasSubstr("\n| `" + std::string(family) + "` | "));
  }
}

}  // namespace
}  // namespace maestro
