// SPDX-License-Identifier: Apache-2.0
// Converts config.json of the Hugging Face model families that this program trains to and from DecoderConfig. A family
// has the keys of its configuration class in transformers 5 and 4; absent keys have the class's defaults.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/model/decoder_config.hpp"

namespace maestro {

/// Parses a config.json, or the language model in the config.json of a vision-language model (text_part.hpp). Errors
/// (invalid_argument) name `where` and the key: not JSON, a key that is missing, of the
/// wrong type or out of range, a model_type outside of decoder_family_names, a variant that this program would compute
/// wrongly (another activation, quantised weights, a mixture of experts), an unknown key that may change the model, two
/// names of a value that contradict each other. Optional keys take the defaults of the transformers library.
[[nodiscard]] Result<DecoderConfig> parse_hf_config(std::string_view text, std::string_view where);

/// Parses a file, or a folder's config.json.
[[nodiscard]] Result<DecoderConfig> read_hf_config(const std::filesystem::path& path);

/// The text of a config.json, and its path.
struct HfConfigText {
  std::string file;
  std::string text;
};
/// Reads a file, or a folder's config.json.
[[nodiscard]] Result<HfConfigText> read_hf_config_text(const std::filesystem::path& path);
inline constexpr std::string_view hf_index_file = "model.safetensors.index.json";
/// The weight_map in an index: the file of each tensor.
using WeightMap = std::map<std::string, std::string, std::less<>>;
/// Returns the weight_map in a folder's index; empty without an index. Errors name the index: not JSON, a missing
/// weight_map with file names, a name outside of the folder.
[[nodiscard]] Result<WeightMap> read_hf_index(const std::filesystem::path& folder);
/// Returns the files that a weight_map names.
[[nodiscard]] std::set<std::string> files_of(const WeightMap& map);
/// Returns the vision-language model_type of a folder; empty for another model (has_text_part).
[[nodiscard]] std::string vision_language_type(const std::filesystem::path& folder);
/// Returns model_type of a config.json, for any family.
[[nodiscard]] Result<std::string> hf_model_type(std::string_view text, std::string_view where);

/// Returns pretty-printed JSON that transformers loads with AutoModelForCausalLM, and that parse_hf_config reads back
/// as the same model (with explicit defaults: kv_heads and ffn are 0 for GPT-2 and filled in for others).
[[nodiscard]] std::string hf_config_text(const DecoderConfig& config);

}  // namespace maestro
