// SPDX-License-Identifier: Apache-2.0
// The language model in a folder of a vision-language model: its config.json; the names of all tensors by part.
//
// VL-1 (nothing passed over): a key at the root and a tensor belong to a known part of the model or are refused.
// VL-2 (classes' defaults): a key that text_config leaves out has the value of its configuration class in transformers.
//
// FP-1 (one part): a stored tensor belongs to one part, or is unknown.
// FP-2 (names and back): two tensors of a folder never have the same name in the same part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/model/decoder_config.hpp"

namespace maestro {

/// Returns whether `model_type` is a vision-language model whose language model this program reads.
[[nodiscard]] bool has_text_part(std::string_view model_type);

/// Returns the config.json of the language model, as transformers' AutoModelForCausalLM loads it: `text` itself, or for
/// a vision-language model its text_config with the defaults of its class and the root's tie_word_embeddings. Rotary
/// positions with an axis each (M-RoPE) become plain ones, which are equal for text. Errors (invalid_argument) name
/// the file and the key.
[[nodiscard]] Result<std::string> language_model_config(std::string_view text, std::string_view where);

/// Returns which rows see rows after them in samples with images; causal for other types.
[[nodiscard]] ImageMask image_mask(std::string_view model_type);

/// Column pairs of a head that turn by time, row and column; without sections all turn by time.
struct RotaryAxes {
  std::vector<std::int64_t> sections;  ///< three, or none
  bool interleaved = false;            ///< the three kinds of pairs alternate; false: they stand one after another
};
/// Returns the axes of the language model in a vision-language model's config.json; none for other models. Errors as
/// language_model_config().
[[nodiscard]] Result<RotaryAxes> rotary_axes(std::string_view text, std::string_view where);

enum class ModelPart : std::uint8_t {
  language_model,
  vision,
  projector,
  audio,            ///< the encoder of sounds, in a model that also reads images
  audio_projector,  ///< projector of `audio`
  other  ///< not read here: Qwen3.5's layers for further tokens, which transformers passes over too; Qwen2.5-Omni's
         ///< speech
};

/// A tensor's part, and its name there.
struct PartName {
  ModelPart part = ModelPart::language_model;
  std::string name;
  int leading_ones = 0;  ///< dimensions of 1 before the separate model's in the stored shape
};

/// Returns the part of a stored tensor of a vision-language model, and the name that a separate model of this part
/// would give it: "model.norm.weight" for "language_model.model.norm.weight", "vision_model.post_layernorm.bias" for
/// "vision_tower.post_layernorm.bias", in every form that transformers 4 and 5 write; nothing for an unknown tensor.
/// The tensors of every encoder get the names that SigLIP has for them, and the tensors of every projector LLaVA's.
[[nodiscard]] std::optional<PartName> part_name(std::string_view model_type, std::string_view stored);

}  // namespace maestro
