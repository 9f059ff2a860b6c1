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

/// Returns the end of the block of prompt rows from `first` on: no row of it sees rows after it.
std::int64_t end_of_block(std::int64_t first, std::int64_t rows, std::span<const std::int32_t> ends) {
  const auto closed = [&](std::int64_t end) {
    return end == rows || ends.empty() || ends[static_cast<std::size_t>(end) - 1] <= end;
  };
  const std::int64_t most = std::min(rows, first + block_rows);
  std::int64_t end = most;
  while (end > first && !closed(end)) --end;
  if (end > first) return end;
  for (end = most; !closed(end);) ++end;
  return end;
}

template <class Values>
Values part_of_rows(const Values& values, std::int64_t first, std::int64_t end, std::int64_t columns = 1) {
  if (values.empty()) return {};
  return {values.begin() + first * columns, values.begin() + end * columns};
}

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

std::string TextGenerator::refusal(std::span<const std::int32_t> prompt, const PromptImages& given) const {
  if (prompt.empty()) return "the prompt has no tokens; give it at least a single token";
  const DecoderConfig& config = decoder();
  if (static_cast<std::int64_t>(prompt.size()) > config.positions) {
    return "the prompt's " + std::to_string(prompt.size()) + " tokens do not fit the model's " +
           std::to_string(config.positions) + " positions";
  }
  const std::int64_t images = std::ranges::count(prompt, image_token),
                     rows = given.visual.defined() ? given.visual.rows() : 0;
  if (images != rows) {
    return "the prompt has " + std::to_string(images) + " image tokens, but its images have " + std::to_string(rows) +
           " rows";
  }
  for (const std::int32_t token : prompt) {
    if (token == image_token || (token >= 0 && token < config.vocabulary)) continue;
    return "the prompt has token " + std::to_string(token) + ", but the model's ids are 0 to " +
           std::to_string(config.vocabulary - 1);
  }
  if (images > 0 && config.image_mask == ImageMask::prefix && config.window > 0 && std::ssize(prompt) > config.window) {
    return "the prompt's " + std::to_string(prompt.size()) + " tokens do not fit the window of " +
           std::to_string(config.window) + " tokens, which a prefix with images must not exceed";
  }
  if (images > 0 && config.needs_marks() && given.marks.empty()) return "the prompt's images lack their marks";
  try {
    (void)columns_of(prompt, given);
  } catch (const std::invalid_argument& problem) {
    return std::string("the prompt's marks do not fit: ") + problem.what();
  }
  return "";
}

MarkColumns TextGenerator::columns_of(std::span<const std::int32_t> prompt, const PromptImages& images) const {
  if (images.marks.empty()) return {};
  if (images.marks.size() != prompt.size() * mark_columns) {
    throw std::invalid_argument(std::to_string(images.marks.size()) + " numbers for " + std::to_string(prompt.size()) +
                                " tokens");
  }
  const std::int32_t offsets[] = {0, static_cast<std::int32_t>(prompt.size())};
  return mark_columns_of(decoder(), images.marks, offsets);
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

void TextGenerator::begin(std::span<const std::int32_t> prompt, std::int64_t more, const PromptImages& images) {
  if (const std::string reason = refusal(prompt, images); !reason.empty()) throw JobError(reason);
  const MarkColumns columns = columns_of(prompt, images);
  reserve(std::min(decoder().positions, static_cast<std::int64_t>(prompt.size()) + more));
  length_ = 0;
  skipped_ = 0;
  std::int64_t taken = 0;  // rows of visual
  for (std::int64_t first = 0; first < std::ssize(prompt);) {
    const std::int64_t end = end_of_block(first, std::ssize(prompt), columns.ends);
    const auto block = prompt.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first));
    const std::int64_t rows = std::ranges::count(block, image_token);
    std::vector<Tensor> visual;
    if (rows > 0) visual.push_back(images.visual.row_slice(taken, rows));
    for (const Tensor& tap : rows > 0 ? images.taps : std::vector<Tensor>()) {
      visual.push_back(tap.row_slice(taken, rows));
    }
    run(block, visual,
        {part_of_rows(columns.positions, first, end, mark_axes), part_of_rows(columns.ends, first, end)});
    taken += rows;
    first = end;
  }
  if (!columns.positions.empty()) skipped_ = std::ranges::max(columns.positions) + 1 - length_;
}

void TextGenerator::append(std::int32_t token) {
  assert(!full());
  run(std::span(&token, 1), {}, {});
}

void TextGenerator::run(std::span<const std::int32_t> tokens, std::span<const Tensor> visual,
                        const MarkColumns& columns) {
  const auto rows = static_cast<std::int32_t>(tokens.size());
  std::vector<std::int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(length_ + skipped_));
  const std::int32_t offsets[] = {0, rows};
  SequenceLayout layout{.offsets = offsets, .positions = positions, .ends = columns.ends};
  std::vector<std::int32_t> on_axes = columns.positions;
  if (on_axes.empty() && skipped_ != 0) {
    for (const std::int32_t position : positions) on_axes.insert(on_axes.end(), mark_axes, position);
  }
  if (!on_axes.empty()) {
    layout.positions = on_axes;
    layout.axes = mark_axes;
  }
  for (AttentionCache& cache : caches_) cache.first = length_;
  logits_ = Var();
  logits_ = model_->cached_logits(tape_, tokens, layout, caches_, visual);
  length_ += rows;
}

Finish TextGenerator::continue_prompt(std::span<const std::int32_t> prompt, const ContinuationLimits& limits,
                                      TokenSampler& sampler, const std::function<void(std::int32_t)>& sink,
                                      const PromptImages& images) {
  begin(prompt, limits.max_tokens, images);
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
