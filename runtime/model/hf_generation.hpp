// SPDX-License-Identifier: Apache-2.0
// generation_config.json of a Hugging Face folder. Training reads only the stop tokens; generation reads the other
// settings as transformers 5.24 does: without do_sample, temperature, top_k and top_p are ignored, with any value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

inline constexpr std::string_view generation_config_file = "generation_config.json";

/// Settings with the meaning and the defaults of transformers.
struct HfGenerationConfig {
  double temperature = 0;  ///< temperature; 0: the likeliest token, as without do_sample
  std::int64_t top_k = 0;  ///< candidates; 0: all
  double top_p = 1;
  double repetition_penalty = 1;
  std::vector<std::string> unused;  ///< "key = value" of settings that would change the text, but are ignored here
};

/// Settings of the caller, which replace the file's settings. A temperature above 0 means do_sample, 0 its absence.
struct GivenSampling {
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
};

/// Returns the ids that end a text: eos_token_id of generation_config.json, else of config.json, else none. Errors
/// (invalid_argument) name file and key: not JSON, or a value that is not an id.
[[nodiscard]] Result<std::vector<std::int32_t>> read_stop_tokens(const std::filesystem::path& folder);

/// Reads the other settings of generation_config.json. Errors (invalid_argument) name file and key: not JSON, or a
/// value that is in use and that transformers refuses.
[[nodiscard]] Result<HfGenerationConfig> read_hf_generation(const std::filesystem::path& folder,
                                                            const GivenSampling& given = {});

/// Returns the text of a generation_config.json without ignored settings for which transformers refuses to save the
/// file again, such as a temperature without do_sample; returns `text` if it has none. Error: not a JSON object.
[[nodiscard]] Result<std::string> savable_generation_config(std::string_view text, std::string_view where);

}  // namespace maestro
