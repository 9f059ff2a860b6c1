// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/models/continuations.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/core/result.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_generation.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "sections/decoder/completions.hpp"
#include "sections/memory/memory_layer.hpp"
#include "sections/memory/ngram_memory.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

constexpr std::size_t name_width = 20;  // as in other tables of commands

/// Returns the memory's folder among the same run's models; empty if the decoder reads none, or none is there.
std::filesystem::path memory_of(const std::filesystem::path& weights, const std::filesystem::path& folder) {
  if (!stored_memory(weights).given()) return {};
  std::error_code failure;
  for (const auto& other : std::filesystem::directory_iterator(folder.parent_path(), failure)) {
    const auto config = read_hf_config_text(other.path());
    if (config && parse_ngram_config(config->text, config->file)) return other.path();
  }
  return {};
}

}  // namespace

std::string in_quotes(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<std::string> continuations_of(const std::string& folder, std::span<const std::string> prompts) {
  const auto tokenizer = open_tokenizer(folder).value_or_throw();
  const ContinuationLimits limits =
      continuation_limits(read_stop_tokens(folder).value_or_throw(), *tokenizer, continuation_tokens);
  const auto weights = ModelFolder::open(folder).value_or_throw().weights;
  const bool bf16 = WeightsFolder::open(weights).value_or_throw().dtype() == WeightDtype::bf16;
  const cpu::CpuOperatorTable ops;
  Generation generation(ops, folder, bf16 ? DType::bf16 : DType::f32, memory_of(weights, folder));
  std::vector<std::vector<std::int32_t>> tokens;
  for (const std::string& prompt : prompts) tokens.push_back(tokenizer->encode_special(prompt));
  std::vector<Prompt> asked;
  for (const auto& prompt : tokens) asked.push_back({.tokens = prompt});
  std::vector<std::string> texts;
  for (const Completion& each : complete(generation, asked, limits, {}, std::ssize(asked))) {
    texts.push_back(tokenizer->decode(each.tokens, true));
  }
  return texts;
}

void print_continuations(std::span<const NamedModel> models, std::span<const std::string> prompts, Console& console) {
  std::vector<std::vector<std::string>> texts;
  for (const NamedModel& model : models) {
    try {
      std::vector<std::string> written = continuations_of(model.folder, prompts);
      std::ranges::transform(written, written.begin(), in_quotes);
      texts.push_back(std::move(written));
    } catch (const JobError& problem) {
      texts.emplace_back(prompts.size(), std::string("(") + problem.what() + ")");
    }
  }
  console.note("continuations (the likeliest " + std::to_string(continuation_tokens) + " tokens)");
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    console.note("  " + in_quotes(prompts[i]));
    for (std::size_t model = 0; model < models.size(); ++model) {
      std::string name = "    " + models[model].name;
      name.resize(std::max(name.size() + 1, name_width + 2), ' ');
      console.note(name + texts[model][i]);
    }
  }
}

}  // namespace maestro
