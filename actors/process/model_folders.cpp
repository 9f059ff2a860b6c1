// SPDX-License-Identifier: Apache-2.0
#include "actors/process/model_folders.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "actors/job/planning_options.hpp"
#include "runtime/checkpoint/model_export.hpp"
#include "runtime/model/adapter_config.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_export.hpp"
#include "runtime/model/model_files.hpp"
#include "runtime/model/text_part.hpp"
#include "runtime/model/weights_fingerprint.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "sections/model_folder.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr const char* config_file = "config.json";

/// Returns whether the corpus may have other tokens than the tokenizer next to the weights; true if they lack one.
bool has_other_tokens(const fs::path& weights, const ResolvedJob& plan) {
  const auto own = find_tokenizer(weights);
  if (!own || is_added_tokenizer(plan.tokenizer)) return true;
  if (plan.tokenizer == "bytes") return !is_byte_tokenizer(*own);
  const fs::path file = find_tokenizer(plan.tokenizer).value_or(plan.tokenizer);
  return !check_same_tokens(*own, file, plan.corpus->vocabulary());
}

/// Writes the corpus' tokenizer into the folder of a decoder without one, and returns the decoder's config.json with
/// the tokenizer's ids.
std::string with_tokenizer(std::string config, const ResolvedJob& plan, bool of_weights, const fs::path& folder) {
  const std::string where = (folder / config_file).string();
  const DecoderConfig decoder = parse_hf_config(config, where).value_or_throw();
  if (is_added_tokenizer(plan.tokenizer)) return config;  // a plug-in's tokenizer lacks files
  if (!plan.tokenizer.empty()) write_tokenizer(plan.tokenizer, decoder.vocabulary, folder).or_throw();
  const SpecialTokens tokens = read_special_tokens(folder).value_or_throw();
  if (of_weights && !tokens.eos && plan.tokenizer != "bytes") return config;  // the ids of the weights are better
  config = config_with_tokens(config, tokens, where).value_or_throw();
  const std::string generation = generation_config_text(config, where).value_or_throw();
  (void)write_file(folder / "generation_config.json", generation).value_or_throw();
  return config;
}

/// Notes the folder of a vision-language model whose part is trained.
void note_complete_model(const std::string& weights, const fs::path& folder) {
  const nlohmann::json note = {{"folder", fs::absolute(weights).lexically_normal().string()},
                               {"weights", weights_fingerprint(weights).value_or_throw()}};
  (void)write_file(folder / whole_model_file, note.dump(2) + "\n").value_or_throw();
}

/// Prepares the files of a section that begins from its weights or from random values. Returns the weights' dtype.
WeightDtype prepare_new(const ResolvedJob& plan, std::size_t index, const fs::path& folder) {
  const std::string& weights = plan.sections[index].config.weights;
  std::string config = plan.meta_sections[index]->config_json();
  const bool decoder = parse_hf_config(config, config_file).ok();
  const bool takes_corpus =
      decoder && (weights.empty() || (!plan.tokenizer.empty() && has_other_tokens(weights, plan)));
  WeightDtype dtype = WeightDtype::f32;
  if (!weights.empty()) {
    std::vector<std::string> files = model_files(weights);
    const std::vector<std::string> tokenizer = tokenizer_files(weights);
    if (takes_corpus) {
      std::erase_if(files, [&](const auto& file) { return std::ranges::find(tokenizer, file) != tokenizer.end(); });
    }
    copy_model_files(weights, files, folder).or_throw();
    const HfConfigText original = read_hf_config_text(weights).value_or_throw();
    const std::string model = language_model_config(original.text, original.file).value_or_throw();
    config = kept_config(model, config, original.file).value_or_throw();
    if (!takes_corpus && !vision_language_type(weights).empty()) note_complete_model(weights, folder);
    dtype = WeightsFolder::open(weights).value_or_throw().dtype();
  }
  if (takes_corpus) config = with_tokenizer(std::move(config), plan, !weights.empty(), folder);
  config = config_with_dtype(config, WeightDtype::f32, config_file).value_or_throw();
  (void)write_file(folder / config_file, config).value_or_throw();
  return dtype;
}

/// Writes the adapters' config file from the job, as the location of their base may have changed.
void write_adapter_config(const ResolvedJob& plan, std::size_t index, const fs::path& folder) {
  std::optional<AdapterConfig> adapters = plan.meta_sections[index]->adapters();
  if (!adapters) return;
  const std::string& weights = plan.sections[index].config.weights;
  if (!weights.empty()) adapters->base = fs::absolute(weights).lexically_normal().string();
  (void)write_file(folder / adapter_config_file, adapter_config_text(*adapters)).value_or_throw();
}

void copy_stored(const fs::path& section, const fs::path& folder) {
  std::vector<std::string> files = model_files(section);
  files.emplace_back(config_file);
  copy_model_files(section, files, folder).or_throw();
}

}  // namespace

fs::path prepared_files_folder(const ResolvedJob& plan) {
  return fs::path(plan.train.out) / ".files";
}

std::map<std::string, std::string> prepare_model_files(const ResolvedJob& plan, const StartPoint& start,
                                                       const fs::path& prepared) {
  std::map<std::string, std::string> dtypes;
  if (has_emulated(plan)) return dtypes;
  std::error_code failure;
  fs::remove_all(prepared, failure);
  for (std::size_t index = 0; index < plan.sections.size(); ++index) {
    const GraphNode& node = plan.graph.nodes()[index];
    if (!node.trained() || node.stage > 0) continue;
    const std::string& name = node.section_name();
    const fs::path folder = prepared / name;
    fs::create_directories(folder, failure);
    if (failure) throw JobError(system_error("cannot create folder", folder, failure.value()));
    if (const auto stored = start.stored.dtypes.find(name); stored != start.stored.dtypes.end()) {
      copy_stored(start.checkpoint / name, folder);
      dtypes[name] = stored->second;
    } else {
      dtypes[name] = name_of(prepare_new(plan, index, folder));
    }
    write_adapter_config(plan, index, folder);
  }
  return dtypes;
}

Result<std::map<std::string, std::string>> export_models(const ResolvedJob& plan, const fs::path& checkpoint) {
  std::map<std::string, std::string> folders;
  const ExportChoice chosen = plan.train.export_dtype;
  if (chosen == ExportChoice::none || !plan.train.checkpoint_at_end) return folders;
  ExportOptions options;
  options.replace = true;
  options.complete = write_complete_model;
  const auto named = std::ranges::find(weight_dtype_names, export_choice_names[static_cast<std::size_t>(chosen)]);
  if (named != weight_dtype_names.end()) options.dtype = static_cast<WeightDtype>(named - weight_dtype_names.begin());
  for (const GraphNode& node : plan.graph.nodes()) {
    if (!node.trained() || node.stage > 0) continue;
    const Result<std::vector<std::string>> sections = sections_of_model(checkpoint, node.section_name(), true);
    if (!sections) return sections.error();
    const std::string name = joined_names(*sections);
    if (folders.contains(name)) continue;
    const fs::path folder = fs::path(plan.train.out) / "models" / name;
    const auto exported = export_section(checkpoint, node.section_name(), folder, options);
    if (!exported) return exported.error();
    folders[name] = folder.string();
  }
  return folders;
}

}  // namespace maestro
