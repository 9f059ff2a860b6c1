// SPDX-License-Identifier: Apache-2.0
// Encoders of sounds and their projectors in config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/hf_config.hpp"
#include "runtime/model/text_part.hpp"
#include "runtime/model/vision_part.hpp"
#include "tests/model/config_text.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Keys of a folder of Qwen2-Audio.
constexpr std::string_view qwen2_audio = R"({
  "architectures": ["Qwen2AudioForConditionalGeneration"], "audio_config": {"model_type": "qwen2_audio_encoder"},
  "audio_token_index": 151646, "ignore_index": -100, "model_type": "qwen2_audio",
  "text_config": {"bos_token_id": 151643, "eos_token_id": 151645, "intermediate_size": 11008,
    "max_position_embeddings": 8192, "model_type": "qwen2", "rms_norm_eps": 1e-05, "rope_theta": 10000,
    "sliding_window": 32768, "torch_dtype": "bfloat16", "use_mrope": false, "vocab_size": 156032},
  "torch_dtype": "bfloat16", "transformers_version": "4.38.1", "vocab_size": 156032})";

std::string sound_refusal(const std::string& text) {
  const auto part = parse_vision_part(text, "c");
  return part ? "accepted" : part.error().message;
}

TEST(SoundPart, has_the_defaults_of_its_class) {  // VP-2
  const VisionPart part = parse_vision_part(qwen2_audio, "c").value_or_throw();
  EXPECT_EQ(part.image_token, 151646);
  EXPECT_EQ(part.encoder.layers, 32);
  EXPECT_EQ(part.encoder.width, 1280);
  EXPECT_EQ(part.encoder.heads, 20);
  EXPECT_EQ(part.encoder.ffn, 5120);
  EXPECT_EQ(part.encoder.mels, 128);
  EXPECT_EQ(part.encoder.max_patches, 1500);
  EXPECT_EQ(part.encoder.activation, GeluKind::erf);
  EXPECT_FALSE(part.encoder.key_bias);
  EXPECT_TRUE(part.encoder.fixed_positions);
  EXPECT_EQ(part.projector.vision_width, 1280);
  EXPECT_EQ(part.projector.width, 4096);
  EXPECT_EQ(part.projector.pool, 2);
  EXPECT_TRUE(part.projector.drops_rest);
  EXPECT_TRUE(has_vision_part("qwen2_audio"));
  EXPECT_TRUE(has_sound_part("qwen2_audio"));
  EXPECT_FALSE(has_sound_part("llava"));
}

TEST(SoundPart, of_voxtral_joins_all_rows_of_a_clip) {  // VP-2
  // Keys of a folder of Voxtral.
  constexpr std::string_view voxtral = R"({
    "architectures": ["VoxtralForConditionalGeneration"], "audio_config": {"activation_dropout": 0.0,
      "activation_function": "gelu", "attention_dropout": 0.0, "dropout": 0.0, "head_dim": 64, "hidden_size": 1280,
      "initializer_range": 0.02, "intermediate_size": 5120, "layerdrop": 0.0, "max_source_positions": 1500,
      "model_type": "voxtral_encoder", "num_attention_heads": 20, "num_hidden_layers": 32, "num_key_value_heads": 20,
      "num_mel_bins": 128, "scale_embedding": false, "vocab_size": 51866}, "audio_token_id": 24, "hidden_size": 3072,
    "model_type": "voxtral", "projector_hidden_act": "gelu", "text_config": {"head_dim": 128, "hidden_size": 3072,
      "intermediate_size": 8192, "max_position_embeddings": 131072, "model_type": "llama", "num_attention_heads": 32,
      "num_hidden_layers": 30, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 100000000.0,
      "vocab_size": 131072}, "torch_dtype": "bfloat16", "vocab_size": 131072})";
  const VisionPart part = parse_vision_part(voxtral, "c").value_or_throw();
  EXPECT_EQ(part.image_token, 24);
  EXPECT_TRUE(part.whole_clips);
  EXPECT_TRUE(part.encoder.last_norm);
  EXPECT_EQ(part.projector.join, 4);
  EXPECT_EQ(part.projector.products, 2);
  EXPECT_FALSE(part.projector.biases);
  EXPECT_EQ(part.projector.activation, GeluKind::erf);
  EXPECT_EQ(part_name("voxtral", "audio_tower.layer_norm.bias")->name, "vision_model.post_layernorm.bias");
  EXPECT_EQ(part_name("voxtral", "multi_modal_projector.linear_1.weight")->name,
            "multi_modal_projector.linear_1.weight");
  const auto with = [&](const char* from, const char* to) { return sound_refusal(replaced(voxtral, from, to)); };
  EXPECT_THAT(with("\"head_dim\": 64", "\"head_dim\": 32"), HasSubstr("head_dim = 32 is not supported; only 64 is"));
  EXPECT_THAT(with("\"intermediate_size\": 5120", "\"intermediate_size\": 5000"),
              HasSubstr("5000 columns do not hold a part of a clip's 1500 rows, side by side"));
}

TEST(SoundPart, is_written_and_read_back_as_sections) {
  const VisionPart part = parse_vision_part(qwen2_audio, "c").value_or_throw();
  EXPECT_EQ(parse_hf_vision_config(qwen2_audio, "c").value_or_throw(), part.encoder);
  EXPECT_EQ(parse_hf_vision_config(hf_vision_config_text(part.encoder), "c").value_or_throw(), part.encoder);
  EXPECT_EQ(parse_hf_projector_config(hf_projector_config_text(part.projector), "c").value_or_throw(), part.projector);
}

TEST(SoundPart, every_key_is_used_or_refused_by_its_name) {  // VP-1
  constexpr const char* type = "\"model_type\": \"qwen2_audio_encoder\"";
  const auto with = [&](const std::string& key) {
    return sound_refusal(replaced(qwen2_audio, type, std::string(type) + ", " + key));
  };
  EXPECT_EQ(with(R"("dropout": 0.1, "encoder_layerdrop": 0.0, "scale_embedding": true)"), "accepted");
  EXPECT_THAT(with(R"("strange": 2)"), AllOf(HasSubstr("audio_config.strange = 2 is unknown here"), IsOneLine()));
  EXPECT_THAT(with(R"("activation_function": "relu")"), HasSubstr("activation_function = \"relu\""));
  EXPECT_THAT(with(R"("encoder_attention_heads": 24)"), HasSubstr("24 does not divide the width 1280"));
  EXPECT_THAT(sound_refusal(replaced(qwen2_audio, "\"ignore_index\": -100", "\"image_seq\": 3")),
              HasSubstr("image_seq"));
  EXPECT_THAT(sound_refusal(replaced(qwen2_audio, "qwen2_audio_encoder", "whisper")), HasSubstr("qwen2_audio_encoder"));
}

// Keys of a folder with Qwen2.5-Omni; its speech has few.
constexpr std::string_view omni = R"({
  "architectures": ["Qwen2_5OmniModel"], "enable_audio_output": true, "enable_talker": true, "model_type": "qwen2_5_omni",
  "talker_config": {"vocab_size": 8448}, "token2wav_config": {"dit_config": {}}, "torch_dtype": "bfloat16",
  "thinker_config": {
    "audio_config": {"_name_or_path": "", "activation_dropout": 0.0, "d_model": 1280, "dropout": 0.0,
      "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "encoder_layers": 32, "init_std": 0.02,
      "max_source_positions": 1500, "model_type": "qwen2_5_omni_audio_encoder", "n_window": 100,
      "num_hidden_layers": 32, "num_mel_bins": 128, "output_dim": 3584, "scale_embedding": false},
    "audio_end_token_id": 151648, "audio_start_token_id": 151647, "audio_token_index": 151646, "ignore_index": -100,
    "image_token_index": 151655, "init_std": 0.02, "model_type": "qwen2_5_omni_thinker", "pad_token_id": 151643,
    "position_id_per_seconds": 25, "seconds_per_chunk": 2, "user_token_id": 872, "video_token_index": 151656,
    "text_config": {"hidden_size": 3584, "init_std": 0.02, "intermediate_size": 18944,
      "max_position_embeddings": 32768, "model_type": "qwen2_5_omni_text", "num_attention_heads": 28,
      "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
      "rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default", "type": "default"},
      "rope_theta": 1000000.0, "sliding_window": 32768, "use_sliding_window": false, "vocab_size": 152064},
    "vision_config": {"depth": 32, "fullatt_block_indexes": [7, 15, 23, 31], "hidden_act": "silu",
      "hidden_size": 1280, "in_channels": 3, "in_chans": 3, "init_std": 0.02, "intermediate_size": 3420,
      "model_type": "qwen2_5_omni_vision_encoder", "num_heads": 16, "out_hidden_size": 3584, "patch_size": 14,
      "spatial_merge_size": 2, "spatial_patch_size": 14, "temporal_patch_size": 2, "tokens_per_second": 25,
      "window_size": 112}}})";

TEST(SoundPart, of_a_model_that_also_sees_is_one_of_two) {  // VP-3
  const VisionPart seen = parse_vision_part(omni, "c").value_or_throw();
  EXPECT_EQ(seen.image_token, 151655);
  EXPECT_EQ(seen.encoder.mels, 0);
  EXPECT_EQ(seen.encoder.window, 8);
  EXPECT_FALSE(seen.encoder.fused_qkv);
  EXPECT_EQ(seen.projector.join, 4);
  const VisionPart heard = parse_vision_part(omni, "c", Modality::sound).value_or_throw();
  EXPECT_EQ(heard.image_token, 151646);
  EXPECT_EQ(heard.chunk_rows, 100);
  EXPECT_EQ(heard.encoder.positions, PatchPositions::sinusoids);
  EXPECT_TRUE(heard.projector.sounds);
  EXPECT_EQ(modalities_of("qwen2_5_omni"), (std::vector{Modality::image, Modality::sound}));
  EXPECT_EQ(modalities_of("qwen2_audio"), std::vector{Modality::sound});
  EXPECT_EQ(modalities_of("llava"), std::vector{Modality::image});
  for (const VisionPart& part : {seen, heard}) {
    const std::string encoder = hf_vision_config_text(part.encoder),
                      projector = hf_projector_config_text(part.projector);
    EXPECT_EQ(parse_hf_vision_config(encoder, "c").value_or_throw(), part.encoder);
    EXPECT_EQ(parse_hf_projector_config(projector, "c").value_or_throw(), part.projector);
    EXPECT_EQ(modality_of_config(encoder), modality_of_config(projector));
  }
  const DecoderConfig decoder = parse_hf_config(omni, "c").value_or_throw();
  EXPECT_EQ(decoder.rope_sections, (std::vector<std::int64_t>{16, 24, 24}));
  EXPECT_EQ(decoder.layers, 28);
}

TEST(SoundPart, of_a_model_that_also_sees_refuses_keys_by_their_names) {  // VP-1, VP-3
  const auto refusal = [&](const char* from, const char* to) { return sound_refusal(replaced(omni, from, to)); };
  EXPECT_THAT(refusal("\"n_window\": 100", "\"n_window\": 75"),
              AllOf(HasSubstr("thinker_config.audio_config.n_window = 75 is not supported; only an even number is"),
                    IsOneLine()));
  EXPECT_THAT(refusal("\"output_dim\": 3584", "\"output_dim\": 64"), HasSubstr("64 differs from the language model's"));
  EXPECT_THAT(refusal("\"seconds_per_chunk\"", "\"seconds_per_row\""), HasSubstr("thinker_config.seconds_per_row = 2"));
  EXPECT_THAT(refusal("\"enable_talker\"", "\"enable_walker\""), HasSubstr("enable_walker = true is unknown here"));
  EXPECT_THAT(refusal("\"audio_token_index\": 151646", "\"audio_token_index\": 151655"),
              HasSubstr("151655 is also the token of images"));
  EXPECT_THAT(refusal("qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"), HasSubstr("qwen2_5_omni_thinker"));
}

TEST(SoundPart, tensors_have_the_names_of_their_part) {  // FP-1
  for (const std::string start : {"", "model."}) {
    const auto name = [&](const std::string& stored) { return part_name("qwen2_audio", start + stored).value(); };
    EXPECT_EQ(name("audio_tower.conv1.weight").name, "vision_model.embeddings.conv1.weight");
    EXPECT_EQ(name("audio_tower.embed_positions.weight").name, "vision_model.embeddings.position_embedding.weight");
    EXPECT_EQ(name("audio_tower.layers.3.self_attn_layer_norm.bias").name,
              "vision_model.encoder.layers.3.layer_norm1.bias");
    EXPECT_EQ(name("audio_tower.layers.3.final_layer_norm.bias").name,
              "vision_model.encoder.layers.3.layer_norm2.bias");
    EXPECT_EQ(name("audio_tower.layers.3.fc2.weight").name, "vision_model.encoder.layers.3.mlp.fc2.weight");
    EXPECT_EQ(name("audio_tower.layer_norm.weight").name, "connector.norm.weight");
    EXPECT_EQ(name("audio_tower.layer_norm.weight").part, ModelPart::projector);
    EXPECT_EQ(name("multi_modal_projector.linear.bias").name, "connector.modality_projection.proj.bias");
  }
  EXPECT_EQ(part_name("qwen2_audio", "language_model.model.norm.weight")->name, "model.norm.weight");
  const auto part = [](const char* stored) { return part_name("qwen2_5_omni", stored).value().part; };
  EXPECT_EQ(part("thinker.audio_tower.proj.weight"), ModelPart::audio_projector);
  EXPECT_EQ(part("thinker.audio_tower.layers.0.fc1.bias"), ModelPart::audio);
  EXPECT_EQ(part("thinker.visual.merger.ln_q.weight"), ModelPart::projector);
  EXPECT_EQ(part("token2wav.code2wav_bigvgan_model.conv_pre.bias"), ModelPart::other);
  EXPECT_FALSE(part_name("qwen2_5_omni", "model.norm.weight"));
}

}  // namespace
}  // namespace maestro
