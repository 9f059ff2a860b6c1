// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_generation.hpp"

#include <algorithm>
#include <array>

#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/model/hf_keys.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr const char* stop_key = "eos_token_id";
constexpr std::int64_t default_top_k = 50;  // in transformers

/// Keys that are read, and keys that do not affect a single text with a length that the caller chooses.
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

/// A key that is ignored unless another setting enables it, and the value that transformers accepts then.
struct IdleKey {
  std::string_view name;
  json neutral;
};
const std::array<IdleKey, 8>& keys_of_sampling() {
  static const std::array<IdleKey, 8> keys{{{"temperature", 1.0},
                                            {"top_p", 1.0},
                                            {"top_k", 50},
                                            {"typical_p", 1.0},
                                            {"epsilon_cutoff", 0.0},
                                            {"eta_cutoff", 0.0},
                                            {"min_p", nullptr},
                                            {"top_h", nullptr}}};
  return keys;
}
const std::array<IdleKey, 2>& keys_of_beams() {
  static const std::array<IdleKey, 2> keys{{{"early_stopping", false}, {"length_penalty", 1.0}}};
  return keys;
}
const std::array<IdleKey, 4>& keys_of_results() {
  static const std::array<IdleKey, 4> keys{{{"output_attentions", false},
                                            {"output_hidden_states", false},
                                            {"output_scores", false},
                                            {"output_logits", false}}};
  return keys;
}

std::vector<std::int32_t> stop_tokens(const HfKeys& keys) {
  const JsonValue found = keys.find(stop_key);
  std::vector<std::int32_t> ids;
  if (!found) return ids;
  for (const JsonValue& id : found.json().is_array() ? found.items() : std::vector{found}) {
    ids.push_back(static_cast<std::int32_t>(id.whole_number(0, INT32_MAX)));
  }
  return ids;
}

/// Returns whether a transformers setting with this value leaves the text unchanged.
bool neutral(const json& value) {
  return value.is_null() || value == false || value == 0 || value == 1 || (!value.is_primitive() && value.empty());
}

bool is_sampled(const json& object) {
  return object.value("do_sample", json()) == true;
}

double amount(const HfKeys& keys, const char* key, double absent) {
  return keys.find(key) ? keys.find(key).number(0) : absent;
}

std::int64_t top_k_of(const HfKeys& keys, std::int64_t absent) {
  if (!keys.find("top_k")) return absent;
  return static_cast<std::int64_t>(std::min(keys.find("top_k").count(), std::uint64_t{INT64_MAX}));
}

HfGenerationConfig generation(const HfKeys& keys, const GivenSampling& given) {
  HfGenerationConfig config;
  const bool asked = keys.flag("do_sample", false);
  const bool sampled = given.temperature ? *given.temperature > 0 : asked;
  // A value that the caller replaces is not read, like an ignored value.
  config.temperature = given.temperature ? *given.temperature : sampled ? amount(keys, "temperature", 1) : 0;
  config.top_k = given.top_k ? *given.top_k : sampled ? top_k_of(keys, asked ? default_top_k : 0) : 0;
  config.top_p = given.top_p ? *given.top_p : sampled ? std::min(amount(keys, "top_p", 1), 1.0) : 1;
  if (!given.top_p && config.top_p == 0) config.temperature = 0, config.top_p = 1;  // only one token is left
  config.repetition_penalty = keys.positive("repetition_penalty", 1);
  for (const auto& [key, value] : keys.json().items()) {
    const bool used = std::ranges::find(known, key) != known.end();
    const bool idle =
        !sampled && std::ranges::find(keys_of_sampling(), key, &IdleKey::name) != keys_of_sampling().end();
    if (!used && !idle && !neutral(value)) config.unused.push_back(printable(key) + " = " + shown(value));
  }
  return config;
}

/// Removes the keys, unless they have the value that transformers accepts. Returns whether any was removed.
template <class Keys>
bool remove_idle(const Keys& keys, ordered_json& object) {
  bool removed = false;
  for (const IdleKey& key : keys) {
    const auto found = object.find(std::string(key.name));
    if (found == object.end() || found->is_null() || json(*found) == key.neutral) continue;
    object.erase(found);
    removed = true;
  }
  return removed;
}

/// Reads a JSON object from a file; an empty object if the file does not exist.
template <class Read>
auto read_file(const fs::path& file, Read read) {
  std::error_code failure;
  if (!fs::exists(file, failure)) return parse_hf_keys("{}", "", read);
  const Result<std::string> text = read_text(file);
  return text ? parse_hf_keys(*text, file.string(), read) : decltype(parse_hf_keys("", "", read))(text.error());
}

}  // namespace

Result<std::vector<std::int32_t>> read_stop_tokens(const fs::path& folder) {
  auto ids = read_file(folder / generation_config_file, stop_tokens);
  if (!ids || !ids->empty()) return ids;
  return read_file(folder / "config.json", stop_tokens);
}

Result<HfGenerationConfig> read_hf_generation(const fs::path& folder, const GivenSampling& given) {
  return read_file(folder / generation_config_file, [&](const HfKeys& keys) { return generation(keys, given); });
}

Result<std::string> savable_generation_config(std::string_view text, std::string_view where) {
  return parse_hf_keys(text, where, [&](const HfKeys& keys) {
    const json& whole = keys.json();
    ordered_json object = ordered_json::parse(text);
    const json beams = whole.value("num_beams", json());
    bool changed = !is_sampled(whole) && remove_idle(keys_of_sampling(), object);
    changed |= (beams.is_null() || beams == 1) && remove_idle(keys_of_beams(), object);
    changed |= whole.value("return_dict_in_generate", json()) != true && remove_idle(keys_of_results(), object);
    if (whole.value("use_cache", json()) == false) {
      for (const char* key : {"cache_implementation", "cache_config"}) changed |= object.erase(key) > 0;
    }
    const json padding = whole.value("pad_token_id", json());
    if (padding.is_number() && padding < 0) changed |= object.erase("pad_token_id") > 0;
    return changed ? object.dump(2) + "\n" : std::string(text);
  });
}

}  // namespace maestro
