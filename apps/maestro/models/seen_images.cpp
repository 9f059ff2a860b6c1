// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/models/seen_images.hpp"

#include <algorithm>

#include "runtime/core/printable.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/images/encoder_grid.hpp"
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

  /// Adds the rows of an image, with tiles numbered from `tiles` on.
  void add(const ImageProcessor& processor, const Image& image, const ImagePlan& plan, const EncoderGrid& encoder) {
    const auto patch_columns = static_cast<std::size_t>(3 * encoder.patch * encoder.patch);
    if (mixes_rows(processor.settings())) {
      const std::vector<MixedRow> mix = mixed_rows(plan, tile_patches(plan, encoder));
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
    processor.rows(processor.tiles(image, plan), std::span(pixels).subspan(first_pixel), own);
    for (std::size_t at = 0; at < own.size(); at += place_columns) own[at] += static_cast<std::int32_t>(tiles);
    tiles += std::ssize(plan.tiles);
    visual += plan.visual_rows;
  }
};

}  // namespace

SeenImages::SeenImages(const std::filesystem::path& folder, std::span<const std::filesystem::path> files,
                       const Tokenizer& tokenizer, const OperatorTable& ops, DType precision)
    : tokenizer_(&tokenizer),
      model_(read_image_model(folder, tokenizer, PassOrder::pillow13).value_or_throw()),
      rule_(read_mark_rule(folder).value_or_throw()),
      reader_(ImageReader::open(ops, folder, precision)) {
  const EncoderGrid encoder = read_encoder_grid(folder).value_or_throw();
  const TokenizerConfig config = read_tokenizer_config(folder).value_or_throw();
  if (model_.mask == ImageMask::prefix && config.chat_template.empty()) {
    prefix_.emplace(tokenizer, model_.expander, config.bos_token);
  }
  EncoderRows rows;
  for (const std::filesystem::path& file : files) {
    const Image image = decode_image(file).value_or_throw();
    const Result<ImagePlan> plan = model_.processor.plan(image.size(), std::ssize(files));
    if (!plan) throw JobError(printable(file.string()) + ": " + plan.error().message);
    texts_.push_back(model_.expander.expand(*plan).value_or_throw());
    grids_.push_back(plan->merged);
    rows.add(model_.processor, image, *plan, encoder);
  }
  const std::int64_t count = std::ssize(rows.places) / place_columns;
  SampleImages images{Tensor(rows.pixels.data(), DType::f32, Shape{count, 3 * encoder.patch * encoder.patch}),
                      Tensor(rows.places.data(), DType::i32, Shape{count, place_columns}), rows.visual};
  if (!rows.sources.empty()) {
    const Shape terms{rows.visual, static_cast<std::int64_t>(mixed_terms)};
    images.sources = Tensor(rows.sources.data(), DType::i32, terms);
    images.weights = Tensor(rows.weights.data(), DType::f32, terms);
  }
  rows_ = reader_->read(images);
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
  return tokens;
}

std::vector<std::int32_t> SeenImages::marks(std::span<const std::int32_t> tokens) const {
  if (rule_.plain()) return {};
  std::vector<std::int32_t> marks(tokens.size() * mark_columns);
  write_marks(rule_, {tokens, std::ssize(tokens), grids_}, marks);
  return marks;
}

}  // namespace maestro
