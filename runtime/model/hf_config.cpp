// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_config.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/files/posix_file.hpp"
#include "runtime/model/hf_families.hpp"
#include "runtime/model/hf_keys.hpp"
#include "runtime/model/text_part.hpp"

namespace maestro {

namespace fs = std::filesystem;
using Keys = HfKeys;

bool ignored_hf_key(std::string_view key) {
  static const std::set<std::string_view> names = {
      "architectures", "attn_implementation", "auto_map", "cache_implementation", "chunk_size_feed_forward", "dtype",
      "finetuning_task", "full_attn_mod", "gradient_checkpointing", "id2label", "interpolate_factor", "is_llama_config",
      "label2id", "language", "max_sequence_length", "n_ctx", "num_labels", "pretraining_tp", "problem_type",
      "reorder_and_upcast_attn", "sliding_window_size", "task_specific_params", "tokenizer_class", "torch_dtype",
      "transformers_version", "transformers.js_config", "use_cache",
      // Keys for text generation; older versions of transformers store them here.
      "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping", "length_penalty", "max_length",
      "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_scores",
      "prefix", "repetition_penalty", "return_dict", "return_dict_in_generate", "suppress_tokens", "temperature",
      "top_k", "top_p", "typical_p"};
  const auto dropout = [&] { return key.ends_with("_dropout") || key.ends_with("_pdrop"); };
  return names.contains(key) || key.starts_with("_") || key.starts_with("summary_") || key.starts_with("unsloth_") ||
         key.ends_with("_token_id") || dropout();
}

void refuse_own_code(const HfKeys& keys) {
  const JsonValue type = keys.find("model_type");
  if (type.json() != "internvl_chat") return;
  type.refuse(
      "is a model by code in its folder; use the folder that transformers reads without it, such as "
      "OpenGVLab/InternVL3-1B-hf, with model_type \"internvl\"");
}

namespace {

std::string family_names(bool (*wanted)(DecoderFamily) = [](DecoderFamily) { return true; }) {
  std::string names;
  for (const std::string_view family : decoder_family_names) {
    if (wanted(*family_of(family))) names += (names.empty() ? "" : ", ") + std::string(family);
  }
  return names;
}

std::optional<DecoderFamily> family_at(const JsonValue& type) {
  return type.json().is_string() ? family_of(type.text()) : std::nullopt;
}

/// Refuses a model for text with images or sound; the error explains how to get its language model.
void refuse_multimodal(const Keys& keys, const JsonValue& type) {
  const auto has = [&](const char* name) { return keys.find(name).json().is_object(); };
  if (!has("text_config") && !has("vision_config") && !has("audio_config")) return;
  const bool text = has("text_config");
  const JsonValue family = (text ? keys.inside("text_config") : keys).find("model_type");
  const std::string named = text && family ? " (" + shown(family.json()) + ")" : "";
  const bool supported = text && (!family || family_at(family));
  type.refuse(supported ? "is a multimodal model, and a decoder reads a language model: save its language model" +
                              named + " in a separate folder, as docs/models.md shows, and name it"
                        : "is a multimodal model, and its language model" + named +
                              " is not supported; these are: " + family_names());
}

/// Accepts MXFP4, in families whose experts may be stored so, and refuses other quantisations. The tensors show which
/// of them are in MXFP4.
void read_quantization(const Keys& keys, DecoderFamily family) {
  const JsonValue stored = keys.find("quantization_config");
  if (!stored) return;
  if (!expert_names(family).transposed) return keys.require_absent("quantization_config");
  const Keys inside(stored);
  inside.require_text("quant_method", "", {"mxfp4"});
  for (const char* key : {"modules_to_not_convert", "dequantize"}) (void)inside.find(key);
  inside.refuse_unknown([](std::string_view) { return false; });
}

DecoderConfig decoder_of(const Keys& keys) {
  const JsonValue type = keys.find("model_type");
  if (!type) type.expected("a family");
  refuse_own_code(keys);
  const std::optional<DecoderFamily> family = family_at(type);
  for (const char* experts : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (!keys.find(experts) || (family && has_experts(*family))) continue;
    keys.fail(experts, "a mixture of experts is only supported in " + family_names(has_experts));
  }
  if (!family) {
    refuse_multimodal(keys, type);
    type.refuse("is not supported; these are: " + family_names());
  }
  read_quantization(keys, *family);
  keys.require_flag("is_causal", true);  // transformers 5 takes false for attention in both directions
  DecoderConfig config = *family == DecoderFamily::gpt2 ? read_gpt2(keys) : read_rotary_family(keys, *family);
  config.vocabulary = keys.size("vocab_size");
  config.init_std = keys.positive("initializer_range", 0.02);
  keys.refuse_unknown(ignored_hf_key);
  return config;
}

}  // namespace

Result<DecoderConfig> parse_hf_config(std::string_view text, std::string_view where) {
  const Result<std::string> own = language_model_config(text, where);
  if (!own) return own.error();
  if (*own == text) return parse_hf_keys(text, where, decoder_of);
  Result<DecoderConfig> config = parse_hf_keys(*own, std::string(where) + ": text_config", decoder_of);
  if (!config) return config;
  config->image_mask = image_mask(hf_model_type(text, where).value_or_throw());
  Result<RotaryAxes> axes = rotary_axes(text, where);
  if (!axes) return axes.error();
  const std::int64_t turned = std::accumulate(axes->sections.begin(), axes->sections.end(), std::int64_t{0});
  const std::int64_t columns = config->head_size > 0 ? config->head_size : config->width / config->heads;
  if (turned != 0 && 2 * turned != columns) {
    return Error{ErrorCode::invalid_argument, std::string(where) + ": mrope_section has " + std::to_string(turned) +
                                                  " pairs of columns, but a head has " + std::to_string(columns) +
                                                  " columns"};
  }
  config->rope_sections = std::move(axes->sections);
  config->rope_interleaved = axes->interleaved;
  return config;
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
  return parse_hf_keys(*text, index.string(), [](const Keys& keys) {
    WeightMap files;
    for (const auto& [tensor, file] : keys.find("weight_map").members()) {
      const std::string name = file.text();
      if (name.empty() || fs::path(name).filename() != name) file.expected("the name of a file");
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
  return parse_hf_keys(text, where, [](const Keys& keys) {
    refuse_own_code(keys);
    return keys.find("model_type").text();
  });
}

std::string vision_language_type(const fs::path& folder) {
  const auto config = read_hf_config_text(folder);
  if (!config) return {};
  const auto type = hf_model_type(config->text, config->file);
  return type && has_text_part(*type) ? *type : std::string();
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
