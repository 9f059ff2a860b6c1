// SPDX-License-Identifier: Apache-2.0
// Chat templates that a processor's class in transformers has, for folders without a file of their own.
#pragma once

#include <filesystem>

namespace maestro {

struct TokenizerConfig;

/// Sets the template of the class of a folder's processor, which counts before the tokenizer's: Qwen2-Audio's. Leaves
/// the template of another model, and of a folder with a template in chat_template.jinja, chat_template.json or
/// processor_config.json. Throws JobError for a config.json or processor_config.json that cannot be read.
void use_class_template(const std::filesystem::path& folder, TokenizerConfig& config);

}  // namespace maestro
