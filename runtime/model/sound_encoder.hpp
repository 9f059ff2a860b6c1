// SPDX-License-Identifier: Apache-2.0
// Configuration classes of encoders for sounds, which follow Whisper's (Radford et al. 2022): two convolutions over
// mel frames, a position table that is not trained, and keys without a bias. Only for sources of
// runtime/model.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/model/hf_keys.hpp"
#include "runtime/model/vision_part.hpp"

namespace maestro {

/// Defaults of a class, and the way from its rows to the decoder's.
struct SoundEncoder {
  std::string_view type;  ///< model_type
  std::string_view layers_key = "encoder_layers";
  std::string_view width_key = "d_model";
  std::string_view heads_key = "encoder_attention_heads";
  std::string_view ffn_key = "encoder_ffn_dim";
  std::int64_t layers = 32;
  std::int64_t width = 1280;
  std::int64_t heads = 20;
  std::int64_t ffn = 5120;
  std::int64_t mels = 128;
  std::int64_t positions = 1500;
  /// A clip's rows are all used, normed, and joined to as many columns as the feed-forward network has. False: the
  /// sound's rows are used, and the mean of two rows is normed.
  bool whole_clips = false;
  std::int64_t chunk = 0;        ///< default for n_window, a chunk's rows; 0: sounds are not cut
  std::string_view out_key{};    ///< the decoder's width; empty: not stated
  bool stored_positions = true;  ///< the table of positions is in the folder; else it is computed
};

inline constexpr SoundEncoder qwen2_audio_encoder{.type = "qwen2_audio_encoder"};
inline constexpr SoundEncoder voxtral_encoder{.type = "voxtral_encoder",
                                              .layers_key = "num_hidden_layers",
                                              .width_key = "hidden_size",
                                              .heads_key = "num_attention_heads",
                                              .ffn_key = "intermediate_size",
                                              .whole_clips = true};
inline constexpr SoundEncoder omni_encoder{
    .type = "qwen2_5_omni_audio_encoder", .chunk = 100, .out_key = "output_dim", .stored_positions = false};

/// Reads encoder and projector from audio_config, which may be absent. Throws JobError for an unsupported value and an
/// unknown key. The caller reads the projector's function.
void read_sound_encoder(const HfKeys& keys, const SoundEncoder& defaults, std::int64_t text_width, VisionPart& part);

}  // namespace maestro
