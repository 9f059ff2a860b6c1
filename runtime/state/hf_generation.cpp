// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/hf_generation.hpp"

#include <array>

#include "runtime/core/input_file.hpp"
#include "runtime/state/hf_keys.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* stop_key = "eos_token_id";
constexpr std::int64_t default_top_k = 50;  // of transformers

/// Keys that are read, and keys without effect on a single text, whose length the caller chooses.
constexpr std::array<std::string_view, 14> known{stop_key,
                                                 "do_sample",
                                                 "temperature",
                                                 "top_k",
                                                 "top_p",
                                                 "repetition_penalty",
                                                 "bos_token_id",
                                                 "pad_token_id",
                                                 "max_length",
                                                 "use_cache",
                                                 "max_new_tokens",
                                                 "cache_implementation",
                                                 "transformers_version",
                                                 "_from_model_config"};

std::int32_t id_of(const HfKeys& keys, const json& value) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  if (!value.is_number_integer() || value < 0 || value >= most) {
    keys.fail(stop_key, "is " + shown(value) + "; it must be a token id or a list of ids");
  }
  return value.get<std::int32_t>();
}

std::vector<std::int32_t> stop_tokens(const HfKeys& keys) {
  const json* found = keys.find(stop_key);
  std::vector<std::int32_t> ids;
  if (found == nullptr) return ids;
  if (!found->is_array()) return {id_of(keys, *found)};
  for (const json& each : *found) ids.push_back(id_of(keys, each));
  return ids;
}

/// Whether a setting of transformers with this value leaves the text as it is.
bool neutral(const json& value) {
  return value.is_null() || value == false || value == 0 || value == 1 || (!value.is_primitive() && value.empty());
}

HfGenerationConfig generation(const json& object, std::string_view where) {
  const HfKeys keys(object, where);
  HfGenerationConfig config;
  config.stop_tokens = stop_tokens(keys);
  const bool sampled = keys.flag("do_sample", false);
  const double temperature = keys.positive("temperature", 1);
  if (sampled) config.temperature = temperature;
  config.top_k = keys.size("top_k", sampled ? default_top_k : 0, 0);
  config.top_p = keys.positive("top_p", 1);
  if (config.top_p > 1) keys.fail("top_p", "is " + shown(*keys.find("top_p")) + "; it must be at most 1");
  config.repetition_penalty = keys.positive("repetition_penalty", 1);
  for (const auto& [key, value] : object.items()) {
    const bool used = std::ranges::find(known, key) != known.end();
    if (!used && !neutral(value)) config.unused.push_back(printable(key) + " = " + shown(value));
  }
  return config;
}

/// Reads a JSON object, or an empty one where there is no such file.
template <class Read>
auto read_file(const fs::path& file, Read read) {
  std::error_code failure;
  if (!fs::exists(file, failure)) return parse_hf_keys("{}", "", read);
  const Result<std::string> text = read_text(file);
  return text ? parse_hf_keys(*text, file.string(), read) : decltype(parse_hf_keys("", "", read))(text.error());
}

}  // namespace

Result<HfGenerationConfig> read_hf_generation(const fs::path& folder) {
  Result<HfGenerationConfig> config = read_file(folder / "generation_config.json", generation);
  if (!config || !config->stop_tokens.empty()) return config;
  const auto of_model = [](const json& object, std::string_view where) { return stop_tokens({object, where}); };
  auto ids = read_file(folder / "config.json", of_model);
  if (!ids) return ids.error();
  config->stop_tokens = *std::move(ids);
  return config;
}

}  // namespace maestro
