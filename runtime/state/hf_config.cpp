// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/hf_config.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/state/hf_families.hpp"
#include "runtime/state/hf_keys.hpp"
#include "runtime/state/posix_file.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;
using Keys = HfKeys;

namespace {

/// Returns true for keys that do not change a forward pass without dropout.
bool is_ignored(std::string_view key) {
  static const std::set<std::string_view> names = {
      "architectures", "attn_implementation", "auto_map", "cache_implementation", "chunk_size_feed_forward", "dtype",
      "finetuning_task", "full_attn_mod", "gradient_checkpointing", "id2label", "interpolate_factor", "is_llama_config",
      "label2id", "language", "max_sequence_length", "n_ctx", "num_labels", "pretraining_tp", "problem_type",
      "reorder_and_upcast_attn", "sliding_window_size", "task_specific_params", "tokenizer_class", "torch_dtype",
      "transformers_version", "transformers.js_config", "use_cache",
      // Of text generation; older versions of transformers store them here.
      "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping", "length_penalty", "max_length",
      "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_scores",
      "prefix", "repetition_penalty", "return_dict", "return_dict_in_generate", "suppress_tokens", "temperature",
      "top_k", "top_p", "typical_p"};
  const auto dropout = [&] { return key.ends_with("_dropout") || key.ends_with("_pdrop"); };
  return names.contains(key) || key.starts_with("_") || key.starts_with("summary_") || key.starts_with("unsloth_") ||
         key.ends_with("_token_id") || dropout();
}

std::string family_names() {
  std::string names;
  for (const std::string_view family : decoder_families()) names += (names.empty() ? "" : ", ") + std::string(family);
  return names;
}

/// Refuses a model of images or sound and text, with the way to its language model.
void refuse_multimodal(const Keys& keys, const json& type) {
  const auto part = [&](const char* name) {
    const json* found = keys.find(name);
    return found != nullptr && found->is_object() ? found : nullptr;
  };
  const json* text = part("text_config");
  if (text == nullptr && part("vision_config") == nullptr && part("audio_config") == nullptr) return;
  const json* family = text == nullptr ? nullptr : keys.inside("text_config", *text).find("model_type");
  const std::string named = family == nullptr ? "" : " (" + shown(*family) + ")";
  const bool supported =
      text != nullptr && (family == nullptr ||
                          (family->is_string() && std::ranges::count(decoder_families(), family->get<std::string>())));
  keys.fail("model_type", "= " + shown(type) +
                              (supported ? " is a multimodal model, and a decoder reads a language model: save that "
                                           "of this model" +
                                               named + " in a folder of its own, as docs/models.md shows, and name it"
                                         : " is a multimodal model, and its language model" + named +
                                               " is not supported; these are: " + family_names()));
}

DecoderConfig decoder_of(const json& object, std::string_view where) {
  const Keys keys(object, where);
  const json* type = keys.find("model_type");
  if (type == nullptr) keys.fail("model_type", "is missing; it must be one of " + family_names());
  for (const char* experts : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (keys.find(experts) != nullptr) keys.fail(experts, "is not supported: a mixture of experts");
  }
  const bool known =
      type->is_string() && std::ranges::find(decoder_families(), type->get<std::string>()) != decoder_families().end();
  if (!known) refuse_multimodal(keys, *type);
  if (!known) keys.fail("model_type", "= " + shown(*type) + " is not supported; these are: " + family_names());
  keys.require_absent("quantization_config");
  keys.require_flag("is_causal", true);  // transformers 5 takes false for attention in both directions
  DecoderConfig config = *type == "gpt2" ? read_gpt2(keys) : read_rotary_family(keys, type->get<std::string>());
  config.vocabulary = keys.size("vocab_size");
  config.init_std = keys.positive("initializer_range", 0.02);
  keys.refuse_unknown(is_ignored);
  return config;
}

}  // namespace

Result<DecoderConfig> parse_hf_config(std::string_view text, std::string_view where) {
  return parse_hf_keys(text, where, decoder_of);
}

Result<DecoderConfig> read_hf_config(const fs::path& path) {
  const auto found = read_hf_config_text(path);
  return found ? parse_hf_config(found->text, found->file) : found.error();
}

Result<HfConfigText> read_hf_config_text(const fs::path& path) {
  std::error_code failure;
  const fs::path file = fs::is_directory(path, failure) ? path / "config.json" : path;
  Result<std::string> text = read_text(file);
  if (!text) return text.error();
  return HfConfigText{file.string(), *std::move(text)};
}

Result<WeightMap> read_hf_index(const fs::path& folder) {
  const fs::path index = folder / hf_index_file;
  std::error_code failure;
  if (!fs::exists(index, failure)) return WeightMap();
  const Result<std::string> text = read_text(index);
  if (!text) return text.error();
  return parse_hf_keys(*text, index.string(), [](const json& object, std::string_view where) {
    const Keys keys(object, where);
    const json* map = keys.find("weight_map");
    if (map == nullptr || !map->is_object()) keys.fail("weight_map", "is no object of tensors and files");
    WeightMap files;
    for (const auto& [tensor, file] : map->items()) {
      const std::string name = file.is_string() ? file.get<std::string>() : "";
      if (name.empty() || fs::path(name).filename() != name) keys.fail("weight_map", "names the file " + shown(file));
      files.emplace(tensor, name);
    }
    return files;
  });
}

std::set<std::string> files_of(const WeightMap& map) {
  std::set<std::string> files;
  for (const auto& [tensor, file] : map) files.insert(file);
  return files;
}

Result<std::string> hf_model_type(std::string_view text, std::string_view where) {
  return parse_hf_keys(text, where, [](const json& object, std::string_view file) {
    const Keys keys(object, file);
    const json* type = keys.find("model_type");
    if (type == nullptr || !type->is_string()) keys.fail("model_type", "is missing");
    return type->get<std::string>();
  });
}

std::string hf_config_text(const DecoderConfig& config) {
  nlohmann::ordered_json out = config.gpt2() ? gpt2_json(config) : rotary_family_json(config);
  out["vocab_size"] = config.vocabulary;
  out["tie_word_embeddings"] = config.tied;
  out["initializer_range"] = config.init_std;
  out["use_cache"] = true;
  out["torch_dtype"] = "float32";
  return out.dump(2) + "\n";
}

}  // namespace maestro
