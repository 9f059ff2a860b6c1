// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/hf_generation.hpp"

#include "runtime/core/input_file.hpp"
#include "runtime/state/hf_keys.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* key = "eos_token_id";

std::int32_t id_of(const HfKeys& keys, const json& value) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  if (!value.is_number_integer() || value < 0 || value >= most) {
    keys.fail(key, "is " + shown(value) + "; it must be a token id or a list of ids");
  }
  return value.get<std::int32_t>();
}

std::vector<std::int32_t> stop_tokens(const json& object, std::string_view where) {
  const HfKeys keys(object, where);
  const json* found = keys.find(key);
  std::vector<std::int32_t> ids;
  if (found == nullptr) return ids;
  if (!found->is_array()) return {id_of(keys, *found)};
  for (const json& each : *found) ids.push_back(id_of(keys, each));
  return ids;
}

}  // namespace

Result<std::vector<std::int32_t>> read_hf_stop_tokens(const fs::path& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path file = folder / name;
    std::error_code failure;
    if (!fs::exists(file, failure)) continue;
    const Result<std::string> text = read_text(file);
    if (!text) return text.error();
    auto ids = parse_hf_keys(*text, file.string(), stop_tokens);
    if (!ids || !ids->empty()) return ids;
  }
  return std::vector<std::int32_t>();
}

}  // namespace maestro
