// SPDX-License-Identifier: Apache-2.0
// generation_config.json of a Hugging Face folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// Returns the ids that end a text: eos_token_id of generation_config.json, else of config.json; none when neither has
/// it. Errors (invalid_argument) name the file: no JSON, or a value that is no id and no list of ids.
[[nodiscard]] Result<std::vector<std::int32_t>> read_hf_stop_tokens(const std::filesystem::path& folder);

}  // namespace maestro
