// SPDX-License-Identifier: Apache-2.0
// config.json of the Hugging Face model families this program trains, to and from DecoderConfig. The keys of a family
// are those of the transformers library's configuration class, of version 5 and of version 4; absent keys have its
// defaults.
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

/// Errors (invalid_argument) name `where` and the key: no JSON, a key missing or of the wrong type or out of range, a
/// model_type that is none of decoder_family_names, a variant this program would compute wrongly (another activation,
/// quantised weights, a mixture of experts), an unknown key that may change the model, a value that stands under two
/// names and contradicts itself. Optional keys take the defaults of the transformers library.
[[nodiscard]] Result<DecoderConfig> parse_hf_config(std::string_view text, std::string_view where);

/// The same from a file, or from the config.json of a folder.
[[nodiscard]] Result<DecoderConfig> read_hf_config(const std::filesystem::path& path);

/// A config.json as it was read, and where.
struct HfConfigText {
  std::string file;
  std::string text;
};
/// Of a file, or of the config.json of a folder.
[[nodiscard]] Result<HfConfigText> read_hf_config_text(const std::filesystem::path& path);
inline constexpr std::string_view hf_index_file = "model.safetensors.index.json";
/// The weight_map of an index: the file of each tensor.
using WeightMap = std::map<std::string, std::string, std::less<>>;
/// Returns the weight_map of a folder's index; empty: there is no index. Errors name the index: not JSON, no weight_map
/// of file names, a name outside of the folder.
[[nodiscard]] Result<WeightMap> read_hf_index(const std::filesystem::path& folder);
/// The files that a weight_map names.
[[nodiscard]] std::set<std::string> files_of(const WeightMap& map);
/// model_type of a config.json, of any family.
[[nodiscard]] Result<std::string> hf_model_type(std::string_view text, std::string_view where);

/// Pretty-printed JSON that transformers loads with AutoModelForCausalLM, and that parse_hf_config reads back as the
/// same model (defaults written out: kv_heads and ffn are 0 for GPT-2 and filled in for others).
[[nodiscard]] std::string hf_config_text(const DecoderConfig& config);

}  // namespace maestro
