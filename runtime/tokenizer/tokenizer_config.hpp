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
  std::string template_file;  ///< where chat_template stands, for messages
};

/// Reads tokenizer_config.json and chat_template.jinja, which counts first; of a list of templates that of the name
/// "default". A file that is missing gives nothing. Errors name file and key.
[[nodiscard]] Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& folder);

/// The tokens around a text.
struct TextEnds {
  bool begin = false;  ///< bos_token stands before a text
  bool end = false;    ///< eos_token stands after it
  std::string bos_token = {};
  std::string eos_token = {};
};
/// Reads add_bos_token, add_eos_token and these tokens of a folder's tokenizer_config.json. They count where no
/// tokenizer.json says what stands around a text, as transformers has it. `absent`: without the file or the key. Errors
/// name file and key.
[[nodiscard]] Result<TextEnds> read_text_ends(const std::filesystem::path& folder, TextEnds absent);

}  // namespace maestro
