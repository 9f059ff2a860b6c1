// SPDX-License-Identifier: Apache-2.0
// Makes the text of config.json and generation_config.json in the model folders that this program writes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "runtime/files/safetensors.hpp"
#include "runtime/model/hf_tokenizer.hpp"

namespace maestro {

/// Returns the config.json of a section with config.json text `own` that began from `original`: the keys, values and
/// order of `original`, with `architectures` of `own`. If model_type differs, as for a section that is a part of the
/// original model, returns `own`. Errors name `where`, the original's file.
[[nodiscard]] Result<std::string> kept_config(std::string_view original, std::string_view own, std::string_view where);

/// Replaces the value of `dtype` or `torch_dtype`, whichever exists.
[[nodiscard]] Result<std::string> config_with_dtype(std::string_view config, WeightDtype dtype, std::string_view where);

/// Returns whether a tensor has F32 in folders of every dtype, as in transformers: the bias of experts' scores, whose
/// steps are smaller than bf16's.
[[nodiscard]] bool stays_f32(std::string_view tensor);

/// Sets bos_token_id, eos_token_id and pad_token_id below the model's vocab_size. An absent id becomes null, since the
/// defaults of transformers belong to other tokenizers.
[[nodiscard]] Result<std::string> config_with_tokens(std::string_view config, const SpecialTokens& tokens,
                                                     std::string_view where);

/// Returns a generation_config.json with the ids of such a config.json.
[[nodiscard]] Result<std::string> generation_config_text(std::string_view config, std::string_view where);

/// Returns a Python expression that loads a folder of export_section: by transformers, by PEFT for adapters, or by
/// safetensors for a model that transformers lacks. Errors: a config.json or weights that cannot be read.
[[nodiscard]] Result<std::string> load_expression(const std::filesystem::path& folder);

}  // namespace maestro
