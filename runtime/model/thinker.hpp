// SPDX-License-Identifier: Apache-2.0
// The thinker of Qwen2.5-Omni (Xu et al. 2025, arXiv 2503.20215): the language model with its encoders of images and
// sounds. The other parts of the complete model, talker and token2wav, speak its answers.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/model/hf_keys.hpp"

namespace maestro {

inline constexpr std::string_view thinker_type = "qwen2_5_omni_thinker", omni_type = "qwen2_5_omni";

/// Returns `model_type`, or the thinker's for the complete model.
[[nodiscard]] constexpr std::string_view without_speech(std::string_view model_type) {
  return model_type == omni_type ? thinker_type : model_type;
}
/// Returns the keys of the model that is read: thinker_config of a complete Qwen2.5-Omni, else `root`. Throws JobError
/// for an unknown key next to thinker_config.
[[nodiscard]] HfKeys without_speech(const HfKeys& root);
/// Returns the name in the thinker of a tensor in the complete model; nothing for tensors of other parts.
[[nodiscard]] std::optional<std::string_view> name_in_thinker(std::string_view stored);
/// Returns whether a tensor of the complete model belongs to talker or token2wav.
[[nodiscard]] bool is_of_speech(std::string_view stored);

}  // namespace maestro
