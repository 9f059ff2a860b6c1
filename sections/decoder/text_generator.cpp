// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/text_generator.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/state_io.hpp"

namespace maestro {

namespace {

constexpr std::int64_t block_rows = 512;  // prompt rows at once: bounds the memory of activations

SectionContext context_of(const OperatorTable& ops, DType precision, const LoraConfig& lora) {
  SectionContext context;
  context.name = "generate";
  context.precision = precision;
  context.values = InitialValues::later;
  context.ops = &ops;
  context.lora = lora;
  return context;
}

std::unique_ptr<DecoderSection> loaded(const OperatorTable& ops, const ModelFolder& folder, DType precision) {
  auto model = std::make_unique<DecoderLm>(context_of(ops, precision, folder.lora),
                                           DecoderLm::Options{read_hf_config(folder.weights).value_or_throw(), {}});
  model->freeze();
  load_model(*model, folder).or_throw();
  return model;
}

}  // namespace

ContinuationLimits continuation_limits(std::vector<std::int32_t> stop_tokens, const Tokenizer& tokenizer,
                                       std::int64_t max_tokens) {
  ContinuationLimits limits{max_tokens, std::move(stop_tokens)};
  if (limits.stop_tokens.empty() && tokenizer.end_of_text()) limits.stop_tokens = {*tokenizer.end_of_text()};
  return limits;
}

TextGenerator::TextGenerator(const OperatorTable& ops, const std::filesystem::path& folder, DType precision)
    : TextGenerator(ops, ModelFolder::open(folder).value_or_throw(), precision) {}

TextGenerator::TextGenerator(const OperatorTable& ops, const ModelFolder& folder, DType precision)
    : TextGenerator(ops, loaded(ops, folder, precision), precision) {}

TextGenerator::TextGenerator(const OperatorTable& ops, std::unique_ptr<DecoderSection> section, DType precision)
    : model_(std::move(section)),
      caches_(static_cast<std::size_t>(model_->decoder().layers)),
      tape_(ops, arena_, precision, false) {}

std::string TextGenerator::refusal(std::span<const std::int32_t> prompt, const Tensor& visual) const {
  if (prompt.empty()) return "the prompt has no tokens; give it at least a single token";
  const DecoderConfig& config = decoder();
  if (static_cast<std::int64_t>(prompt.size()) > config.positions) {
    return "the prompt's " + std::to_string(prompt.size()) + " tokens do not fit the model's " +
           std::to_string(config.positions) + " positions";
  }
  const std::int64_t images = std::ranges::count(prompt, image_token), rows = visual.defined() ? visual.rows() : 0;
  if (images != rows) {
    return "the prompt has " + std::to_string(images) + " image tokens, but its images have " + std::to_string(rows) +
           " rows";
  }
  for (const std::int32_t token : prompt) {
    if (token == image_token || (token >= 0 && token < config.vocabulary)) continue;
    return "the prompt has token " + std::to_string(token) + ", but the model's ids are 0 to " +
           std::to_string(config.vocabulary - 1);
  }
  return "";
}

void TextGenerator::reserve(std::int64_t rows) {
  capacity_ = rows;
  if (!caches_.empty() && caches_[0].keys.defined() && caches_[0].keys.rows() >= rows) return;
  const Shape each{rows, decoder().key_columns()};
  const std::size_t bytes = Tensor(nullptr, tape_.compute(), each).bytes();
  memory_.reset();
  memory_ = AlignedMemory(2 * caches_.size() * bytes);
  std::byte* at = memory_.data();
  for (AttentionCache& cache : caches_) {
    for (Tensor* tensor : {&cache.keys, &cache.values}) {
      *tensor = Tensor(at, tape_.compute(), each);
      at += bytes;
    }
  }
}

void TextGenerator::begin(std::span<const std::int32_t> prompt, std::int64_t more, const Tensor& visual) {
  if (const std::string reason = refusal(prompt, visual); !reason.empty()) throw JobError(reason);
  reserve(std::min(decoder().positions, static_cast<std::int64_t>(prompt.size()) + more));
  length_ = 0;
  std::int64_t taken = 0;  // rows of visual
  while (!prompt.empty()) {
    const auto block = prompt.first(std::min(prompt.size(), static_cast<std::size_t>(block_rows)));
    const std::int64_t images = std::ranges::count(block, image_token);
    run(block, images > 0 ? visual.row_slice(taken, images) : Tensor());
    taken += images;
    prompt = prompt.subspan(block.size());
  }
}

void TextGenerator::append(std::int32_t token) {
  assert(!full());
  run(std::span(&token, 1));
}

void TextGenerator::run(std::span<const std::int32_t> tokens, const Tensor& visual) {
  const auto rows = static_cast<std::int32_t>(tokens.size());
  std::vector<std::int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(length_));
  const std::int32_t offsets[] = {0, rows};
  for (AttentionCache& cache : caches_) cache.first = length_;
  logits_ = Var();
  logits_ = model_->cached_logits(tape_, tokens, {offsets, positions}, caches_, visual);
  length_ += rows;
}

Finish TextGenerator::continue_prompt(std::span<const std::int32_t> prompt, const ContinuationLimits& limits,
                                      TokenSampler& sampler, const std::function<void(std::int32_t)>& sink,
                                      const Tensor& visual) {
  begin(prompt, limits.max_tokens, visual);
  std::vector<std::int32_t> sequence(prompt.begin(), prompt.end());
  for (std::int64_t count = 0; count < limits.max_tokens; ++count) {
    const std::int32_t token = sampler.choose(logits(), sequence);
    if (std::ranges::find(limits.stop_tokens, token) != limits.stop_tokens.end()) return Finish::stop;
    sink(token);
    sequence.push_back(token);
    if (full() || count + 1 == limits.max_tokens) return Finish::length;
    append(token);
  }
  return Finish::length;
}

}  // namespace maestro
