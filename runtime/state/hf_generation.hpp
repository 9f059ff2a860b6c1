// SPDX-License-Identifier: Apache-2.0
// generation_config.json of a Hugging Face folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// Settings with the meaning and the defaults that transformers gives them.
struct HfGenerationConfig {
  std::vector<std::int32_t> stop_tokens;  ///< the ids that end a text
  double temperature = 0;                 ///< 0 without do_sample: the likeliest token
  std::int64_t top_k = 0;                 ///< 0: all
  double top_p = 1;
  double repetition_penalty = 1;
  std::vector<std::string> unused;  ///< "key = value" of settings that would change the text and have no effect here
};

/// Reads generation_config.json; eos_token_id is that of config.json where generation_config.json has none, and without
/// either there are no stop tokens. Errors (invalid_argument) name file and key: no JSON, or a value out of range.
[[nodiscard]] Result<HfGenerationConfig> read_hf_generation(const std::filesystem::path& folder);

}  // namespace maestro
