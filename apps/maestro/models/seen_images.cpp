// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/models/seen_images.hpp"

#include <algorithm>

#include "runtime/core/printable.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/images/mixed_rows.hpp"
#include "runtime/tokenizer/tokenizer_config.hpp"

namespace maestro {

namespace {

constexpr std::int64_t place_columns = 3;

/// The rows of images for the encoder.
struct EncoderRows {
  std::vector<float> pixels;
  std::vector<std::int32_t> places;
  std::vector<std::int32_t> sources;
  std::vector<float> weights;
  std::int64_t tiles = 0;
  std::int64_t visual = 0;  ///< rows of the decoder

  /// Adds the rows of an image or a sound, with tiles numbered from `tiles` on.
  void add(const MediaProcessor& processor, const MediaContent& content, const ImagePlan& plan) {
    const auto patch_columns = static_cast<std::size_t>(processor.columns(plan.modality));
    if (plan.modality == Modality::image && processor.mixes_rows()) {
      const std::vector<MixedRow> mix = mixed_rows(plan, processor.tile_grid(plan));
      const std::size_t first = sources.size(), terms = mix.size() * mixed_terms;
      sources.resize(first + terms);
      weights.resize(first + terms);
      write_mix(mix, std::ssize(places) / place_columns, std::span(sources).subspan(first),
                std::span(weights).subspan(first));
    }
    const auto rows = static_cast<std::size_t>(plan.encoder_rows);
    const std::size_t first_pixel = pixels.size(), first_place = places.size();
    pixels.resize(first_pixel + rows * patch_columns);
    places.resize(first_place + rows * place_columns);
    const auto own = std::span(places).subspan(first_place);
    processor.rows(content, std::span(pixels).subspan(first_pixel), own);
    for (std::size_t at = 0; at < own.size(); at += place_columns) own[at] += static_cast<std::int32_t>(tiles);
    tiles += std::ssize(plan.tiles);
    visual += plan.visual_rows;
  }
};

}  // namespace

SeenImages::SeenImages(const std::filesystem::path& folder, std::span<const std::filesystem::path> images,
                       std::span<const std::filesystem::path> sounds, const Tokenizer& tokenizer,
                       const OperatorTable& ops, DType precision)
    : tokenizer_(&tokenizer),
      model_(read_image_model(folder, tokenizer, PassOrder::pillow13).value_or_throw()),
      rule_(read_mark_rule(folder).value_or_throw()) {
  const TokenizerConfig config = read_tokenizer_config(folder).value_or_throw();
  if (model_.mask == ImageMask::prefix && config.chat_template.empty()) {
    prefix_.emplace(tokenizer, model_.expander, config.bos_token);
  }
  if (!images.empty()) read(folder, images, image_medium, ops, precision);
  if (!sounds.empty()) read(folder, sounds, sound_medium, ops, precision);
}

void SeenImages::read(const std::filesystem::path& folder, std::span<const std::filesystem::path> files,
                      const Medium& medium, const OperatorTable& ops, DType precision) {
  const Media known = model_.processor.media();
  if (std::ranges::find(known, medium) == known.end()) {
    throw JobError(printable(folder.string()) + ": the model reads " + std::string(known.front().noun) + "s, not " +
                   std::string(medium.noun) + "s; give them by --" + std::string(known.front().type));
  }
  readers_.push_back(ImageReader::open(ops, folder, precision, medium.modality));
  EncoderRows rows;
  for (const std::filesystem::path& file : files) {
    const ImageSize size = media_size(file, medium, known).value_or_throw();
    const Result<ImagePlan> plan = model_.processor.plan(size, std::ssize(files), medium.modality);
    if (!plan) throw JobError(printable(file.string()) + ": " + plan.error().message);
    const MediaContent content = model_.processor.decode(file, *plan).value_or_throw();
    texts_.push_back(model_.expander.expand(*plan).value_or_throw());
    media_.push_back(medium);
    if (medium == image_medium) grids_.push_back(plan->merged);
    rows.add(model_.processor, content, *plan);
  }
  const std::int64_t count = std::ssize(rows.places) / place_columns;
  SampleImages images{Tensor(rows.pixels.data(), DType::f32, Shape{count, model_.processor.columns(medium.modality)}),
                      Tensor(rows.places.data(), DType::i32, Shape{count, place_columns}), rows.visual};
  if (!rows.sources.empty()) {
    const Shape terms{rows.visual, static_cast<std::int64_t>(mixed_terms)};
    images.sources = Tensor(rows.sources.data(), DType::i32, terms);
    images.weights = Tensor(rows.weights.data(), DType::f32, terms);
  }
  (known.size() > 1 && medium == sound_medium ? heard_ : rows_) = readers_.back()->read(images);
}

PromptImages SeenImages::rows(std::span<const std::int32_t> marks) const {
  return {rows_.visual(), marks, rows_.taps(), heard_.visual()};
}

std::vector<std::int32_t> SeenImages::encode(std::string_view text) const {
  return marked(model_.expander.encode(text, texts_, *tokenizer_).value_or_throw());
}

std::optional<std::vector<std::int32_t>> SeenImages::prefix(std::string_view question) const {
  if (!prefix_) return std::nullopt;
  return marked(prefix_->prefix(question, texts_).value_or_throw());
}

std::vector<std::int32_t> SeenImages::marked(std::vector<std::int32_t> tokens) const {
  std::ranges::replace(tokens, model_.expander.image_token(), image_token);
  if (const auto sound = model_.expander.sound_token()) std::ranges::replace(tokens, *sound, sound_token);
  return tokens;
}

std::vector<std::int32_t> SeenImages::marks(std::span<const std::int32_t> tokens) const {
  if (rule_.plain()) return {};
  std::vector<std::int32_t> marks(tokens.size() * mark_columns);
  write_marks(rule_, {tokens, std::ssize(tokens), grids_}, marks);
  return marks;
}

}  // namespace maestro
