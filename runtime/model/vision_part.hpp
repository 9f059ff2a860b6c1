// SPDX-License-Identifier: Apache-2.0
// The vision encoder and the projector in the config.json of a vision-language model: llava, llava_onevision, smolvlm,
// idefics3, gemma3, paligemma, qwen2_vl, qwen2_5_vl, qwen3_vl, internvl (transformers' LlavaConfig,
// LlavaOnevisionConfig, SmolVLMConfig, Idefics3Config, Gemma3Config, PaliGemmaConfig, Qwen2VLConfig, Qwen2_5_VLConfig,
// Qwen3VLConfig, InternVLConfig).
//
// VP-1 (nothing passed over): every key at the root and in vision_config is used, known to be without effect, or
//       refused by its name.
// VP-2 (defaults): a key that vision_config leaves out has the value of its class; if vision_config is absent, the
//       model's class has other numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
  std::int64_t image_token = 0;       ///< id of the token that stands for a row of an image in a text
  std::int64_t most_tiles = 0;        ///< K of "anyres_max_K" (LLaVA-OneVision); 0: images are not fitted
  std::vector<ImageCanvas> canvases;  ///< canvases of fitted images, in the file's order
};

/// Returns whether `model_type` is a vision-language model whose vision encoder this program reads.
[[nodiscard]] bool has_vision_part(std::string_view model_type);
/// Returns these types.
[[nodiscard]] std::vector<std::string> vision_part_types();

/// Parses the config.json of such a model. Errors (invalid_argument) name the file and the key.
[[nodiscard]] Result<VisionPart> parse_vision_part(std::string_view text, std::string_view where);

}  // namespace maestro
