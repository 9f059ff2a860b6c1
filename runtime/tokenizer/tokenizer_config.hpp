// SPDX-License-Identifier: Apache-2.0
// The part of a folder's tokenizer_config.json that generation needs: special tokens and the chat template.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

/// Empty: not given.
struct TokenizerConfig {
  std::string settings_file;  ///< tokenizer_config.json, for messages
  std::string bos_token;
  std::string eos_token;
  std::string chat_template;
  std::string template_file;  ///< file with the chat_template, for messages
};

/// Reads tokenizer_config.json and chat_template.jinja, which precedes it; without a template there, the template of
/// the model's processor, in processor_config.json or chat_template.json. From a list of templates it takes "default".
/// A missing file yields nothing. Errors name file and key.
[[nodiscard]] Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& folder);

/// Tokens around a text.
struct TextEnds {
  bool begin = false;  ///< bos_token precedes a text
  bool end = false;    ///< eos_token follows it
  std::string bos_token = {};
  std::string eos_token = {};
};
/// Reads add_bos_token, add_eos_token and these tokens of a folder's tokenizer_config.json. They count if no
/// tokenizer.json states the tokens around a text, as in transformers. `absent`: defaults without the file or the key.
/// Errors name file and key.
[[nodiscard]] Result<TextEnds> read_text_ends(const std::filesystem::path& folder, TextEnds absent);

}  // namespace maestro
