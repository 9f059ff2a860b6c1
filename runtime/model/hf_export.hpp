// SPDX-License-Identifier: Apache-2.0
// Text of a model's config.json and generation_config.json in the folders that this program writes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "runtime/files/safetensors.hpp"
#include "runtime/model/hf_tokenizer.hpp"

namespace maestro {

/// Returns `original`, the config.json that a section began from, for the section whose own text is `own`: keys, values
/// and their order stay, `architectures` is that of `own`. Of another model_type, as where a section is a part of the
/// original's model, `own` itself. Errors name `where`, the original's file.
[[nodiscard]] Result<std::string> kept_config(std::string_view original, std::string_view own, std::string_view where);

/// Replaces the value of `dtype` or `torch_dtype`, whichever there is.
[[nodiscard]] Result<std::string> config_with_dtype(std::string_view config, WeightDtype dtype, std::string_view where);

/// Sets bos_token_id, eos_token_id and pad_token_id below the model's vocab_size; without an id, null, since defaults
/// of transformers are those of other tokenizers.
[[nodiscard]] Result<std::string> config_with_tokens(std::string_view config, const SpecialTokens& tokens,
                                                     std::string_view where);

/// generation_config.json with the ids of such a config.json.
[[nodiscard]] Result<std::string> generation_config_text(std::string_view config, std::string_view where);

/// Returns the Python expression that loads a folder of export_section: of transformers, of PEFT for adapters, or of
/// safetensors for a model that transformers lacks. Errors: a config.json or weights that cannot be read.
[[nodiscard]] Result<std::string> load_expression(const std::filesystem::path& folder);

}  // namespace maestro
