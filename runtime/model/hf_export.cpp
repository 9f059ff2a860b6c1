// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_export.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "runtime/core/input_file.hpp"
#include "runtime/model/adapter_config.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_keys.hpp"
#include "runtime/model/text_part.hpp"
#include "runtime/model/vision_part.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr std::array<const char*, 3> token_keys{"bos_token_id", "eos_token_id", "pad_token_id"};

/// Returns the object in `text` with its keys in order, after a check of its content.
Result<ordered_json> ordered(std::string_view text, std::string_view where) {
  return parse_hf_keys(text, where, [&](const HfKeys&) { return ordered_json::parse(text); });
}

std::string dumped(const ordered_json& object) {
  return object.dump(2) + "\n";
}

/// Returns the names of all tensors in a folder that export_section has written.
Result<std::set<std::string>> tensor_names(const fs::path& folder) {
  const Result<WeightMap> index = read_hf_index(folder);
  if (!index) return index.error();
  std::set<std::string> files = files_of(*index);
  if (files.empty()) files.insert("model.safetensors");
  std::set<std::string> names;
  for (const std::string& name : files) {
    const Result<SafetensorsFile> file = SafetensorsFile::open(folder / name);
    if (!file) return file.error();
    for (std::string& tensor : file->names()) names.insert(std::move(tensor));
  }
  return names;
}

/// Returns the transformers class that loads every tensor; empty if there is none.
std::string loader_of(const HfConfigText& config, const std::set<std::string>& tensors) {
  const auto type = hf_model_type(config.text, config.file);
  if (type && *type == "siglip_vision_model") return "SiglipVisionModel";
  if (type && has_sound_part(*type)) return "AutoModelForMultimodalLM";
  if (type && has_text_part(*type)) return "AutoModelForImageTextToText";
  const auto decoder = parse_hf_config(config.text, config.file);
  const auto holds = [&](std::string_view end) {
    return std::ranges::any_of(tensors, [&](const std::string& name) { return name.ends_with(end); });
  };
  if (!decoder || !(holds("wte.weight") || holds("embed_tokens.weight"))) return "";
  return decoder->tied || holds("lm_head.weight") ? "AutoModelForCausalLM" : "AutoModel";
}

std::string quoted(const fs::path& path) {
  return json(path.string()).dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<std::string> adapter_expression(const fs::path& folder) {
  const fs::path file = folder / adapter_config_file;
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  const Result<AdapterConfig> config = parse_adapter_config(*text, file.string());
  if (!config) return config.error();
  const std::string base =
      config->base.empty() ? "MODEL" : "AutoModelForCausalLM.from_pretrained(" + quoted(fs::path(config->base)) + ")";
  return "PeftModel.from_pretrained(" + base + ", " + quoted(folder) + ")";
}

}  // namespace

Result<std::string> kept_config(std::string_view original, std::string_view own, std::string_view where) {
  Result<ordered_json> config = ordered(original, where);
  if (!config) return config.error();
  const Result<ordered_json> made = ordered(own, "the section's config.json");
  if (!made) return made.error();
  if (config->value("model_type", ordered_json()) != made->value("model_type", ordered_json())) return std::string(own);
  if (made->contains("architectures")) (*config)["architectures"] = made->at("architectures");
  return dumped(*config);
}

Result<std::string> config_with_dtype(std::string_view config, WeightDtype dtype, std::string_view where) {
  constexpr std::array<const char*, 3> names{"float32", "bfloat16", "float16"};
  Result<ordered_json> object = ordered(config, where);
  if (!object) return object.error();
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (object->contains(key)) (*object)[key] = names[static_cast<std::size_t>(dtype)];
  }
  return dumped(*object);
}

bool stays_f32(std::string_view tensor) {
  return tensor.ends_with(".e_score_correction_bias") || tensor.ends_with(".expert_bias");
}

Result<std::string> config_with_tokens(std::string_view config, const SpecialTokens& tokens, std::string_view where) {
  Result<ordered_json> object = ordered(config, where);
  if (!object) return object.error();
  const auto rows = object->value("vocab_size", std::int64_t{0});
  const std::array<std::optional<std::int64_t>, 3> ids{tokens.bos, tokens.eos, tokens.pad};
  for (std::size_t at = 0; at < ids.size(); ++at) {
    const bool held = ids[at] && *ids[at] < rows;
    (*object)[token_keys[at]] = held ? ordered_json(*ids[at]) : ordered_json(nullptr);
  }
  return dumped(*object);
}

Result<std::string> generation_config_text(std::string_view config, std::string_view where) {
  const Result<ordered_json> object = ordered(config, where);
  if (!object) return object.error();
  ordered_json generation = ordered_json::object();
  for (const char* key : token_keys) {
    if (const auto id = object->find(key); id != object->end() && !id->is_null()) generation[key] = *id;
  }
  return dumped(generation);
}

Result<std::string> load_expression(const fs::path& folder) {
  std::error_code failure;
  if (fs::exists(folder / adapter_config_file, failure)) return adapter_expression(folder);
  const auto config = read_hf_config_text(folder);
  if (!config) return config.error();
  const auto tensors = tensor_names(folder);
  if (!tensors) return tensors.error();
  const std::string loader = loader_of(*config, *tensors);
  if (!loader.empty()) return loader + ".from_pretrained(" + quoted(folder) + ")";
  return "safetensors.torch.load_file(" + quoted(folder / "model.safetensors") + ")";
}

}  // namespace maestro
