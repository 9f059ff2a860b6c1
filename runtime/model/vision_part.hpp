// SPDX-License-Identifier: Apache-2.0
// The encoder and the projector in the config.json of a model that sees images: llava, llava_onevision, smolvlm,
// idefics3, gemma3, paligemma, qwen2_vl, qwen2_5_vl, qwen3_vl, internvl (transformers' LlavaConfig,
// LlavaOnevisionConfig, SmolVLMConfig, Idefics3Config, Gemma3Config, PaliGemmaConfig, Qwen2VLConfig, Qwen2_5_VLConfig,
// Qwen3VLConfig, InternVLConfig), or that hears sounds: qwen2_audio, voxtral (Qwen2AudioConfig, VoxtralConfig), or
// both: qwen2_5_omni_thinker, and this part of qwen2_5_omni (Qwen2_5OmniThinkerConfig, Qwen2_5OmniConfig).
//
// VP-1 (nothing passed over): every key at the root and in vision_config or audio_config is used, known to be without
// effect, or
//       refused by its name.
// VP-2 (defaults): a key that this object leaves out has the value of its class; if vision_config is absent, the
//       model's class has other numbers.
// VP-3 (two encoders): of a model with encoders for images and for sounds, both parts are checked, and one is returned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/modality.hpp"
#include "runtime/core/result.hpp"
#include "runtime/model/hf_vision_config.hpp"

namespace maestro {

/// A canvas that an image is fitted into, pixels.
struct ImageCanvas {
  std::int64_t height = 0;
  std::int64_t width = 0;
  friend bool operator==(const ImageCanvas&, const ImageCanvas&) = default;
};

struct VisionPart {
  VisionConfig encoder;
  ProjectorConfig projector;
  std::int64_t image_token = 0;       ///< id of the token that stands for a row of an image or a sound in a text
  std::int64_t most_tiles = 0;        ///< K of "anyres_max_K" (LLaVA-OneVision); 0: images are not fitted
  std::vector<ImageCanvas> canvases;  ///< canvases of fitted images, in the file's order
  bool whole_clips = false;           ///< a sound's clips are used with all rows
  std::int64_t chunk_rows = 0;        ///< rows of the encoder after which a sound is cut into chunks; 0: it is not
};

/// Returns whether `model_type` is a model with an encoder of images or sounds that this program reads.
[[nodiscard]] bool has_vision_part(std::string_view model_type);
/// Returns whether `model_type` is such a model for sounds, or for images; a model may be both.
[[nodiscard]] bool has_sound_part(std::string_view model_type);
[[nodiscard]] bool has_image_part(std::string_view model_type);
/// Returns the kinds that the model reads, images first.
[[nodiscard]] std::vector<Modality> modalities_of(std::string_view model_type);
/// Returns these types.
[[nodiscard]] std::vector<std::string> vision_part_types();

/// Parses the config.json of such a model; `modality` chooses a part if it has two. Errors (invalid_argument) name the
/// file and the key.
[[nodiscard]] Result<VisionPart> parse_vision_part(std::string_view text, std::string_view where,
                                                   Modality modality = Modality::image);

}  // namespace maestro
