// SPDX-License-Identifier: Apache-2.0
#include "tests/sections/vision_images.hpp"

#include <algorithm>
#include <numeric>

#include "runtime/data/corpus.hpp"

namespace maestro::testing {

Pictures Pictures::random(std::uint64_t seed, const std::vector<std::vector<PictureSize>>& samples,
                          std::int64_t patch) {
  Random random(seed);
  Pictures made;
  made.columns = 3 * patch * patch;
  for (const auto& sizes : samples) {
    const std::size_t before = made.places.size();
    for (std::size_t image = 0; image < sizes.size(); ++image) {
      for (std::int32_t row = 0; row < sizes[image].rows; ++row) {
        for (std::int32_t column = 0; column < sizes[image].columns; ++column) {
          made.places.insert(made.places.end(), {static_cast<std::int32_t>(image), row, column});
        }
      }
    }
    made.counts.push_back(static_cast<std::int32_t>((made.places.size() - before) / 3));
  }
  made.pixels.resize(static_cast<std::size_t>(made.rows() * made.columns));
  for (float& value : made.pixels) value = static_cast<float>(2 * random.uniform() - 1);
  return made;
}

Pictures Pictures::part(std::int32_t first, std::int32_t count) const {
  Pictures cut;
  cut.columns = columns;
  cut.counts = {count};
  cut.pixels.assign(pixels.begin() + first * columns, pixels.begin() + (first + count) * columns);
  cut.places.assign(places.begin() + 3 * first, places.begin() + 3 * (first + count));
  return cut;
}

Tensor Pictures::pixel_tensor() const {
  return {const_cast<float*>(pixels.data()), DType::f32, Shape{rows(), columns}};
}
Tensor Pictures::place_tensor() const {
  return {const_cast<std::int32_t*>(places.data()), DType::i32, Shape{rows(), 3}};
}

Batch Pictures::batch() const {
  std::vector<std::int32_t> words(counts.size(), 0), offsets(counts.size() + 1);
  std::iota(offsets.begin(), offsets.end(), 0);
  Batch made(words, words, offsets);
  made.with_patches(counts);
  return made;
}

void Pictures::connect(MicroBatch& batch) const {
  batch.connect("pixels", pixel_tensor());
  batch.connect("places", place_tensor());
}

VisionConfig tiny_vision(PatchPositions positions) {
  VisionConfig config;
  config.layers = 2;
  config.width = 16;
  config.heads = 2;
  config.ffn = 24;
  config.patch = 2;
  config.positions = positions;
  config.max_patches = 12;
  config.max_grid = 6;
  return config;
}

DecoderConfig tiny_decoder(DecoderFamily family) {
  DecoderConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 16;
  config.heads = 4;
  config.kv_heads = family == DecoderFamily::llama ? 2 : 0;
  config.ffn = 24;
  config.vocabulary = 37;
  config.positions = 32;
  config.tied = family == DecoderFamily::gpt2;
  return config;
}

Batch illustrated(const Pictures& pictures, std::int32_t words, std::int64_t vocabulary) {
  Random random(77);
  const auto word = [&] { return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))); };
  std::vector<std::int32_t> tokens, targets, offsets{0};
  for (const std::int32_t patches : pictures.counts) {
    tokens.push_back(word());
    targets.push_back(ignored_target);
    tokens.insert(tokens.end(), static_cast<std::size_t>(patches), image_token);
    targets.insert(targets.end(), static_cast<std::size_t>(patches), ignored_target);
    for (std::int32_t i = 0; i < words; ++i) {
      tokens.push_back(word());
      targets.push_back(i % 5 == 4 ? ignored_target : word());
    }
    offsets.push_back(static_cast<std::int32_t>(tokens.size()));
  }
  Batch made(tokens, targets, offsets);
  made.with_patches(pictures.counts);
  return made;
}

std::vector<std::int32_t> marks_of(const Batch& batch, const MarkRule& rule) {
  std::vector<std::int32_t> marks(batch.tokens.size() * mark_columns);
  for (std::size_t sample = 0; sample + 1 < batch.offsets.size(); ++sample) {
    const auto first = static_cast<std::size_t>(batch.offsets[sample]);
    const auto length = static_cast<std::size_t>(batch.offsets[sample + 1]) - first;
    const auto targets = std::span(batch.targets).subspan(first, length);
    const auto learned = std::ranges::find_if(targets, [](std::int32_t target) { return target >= 0; });
    const auto prefix = std::min(std::ssize(targets), learned - targets.begin() + 1);
    write_marks(rule, {std::span(batch.tokens).subspan(first, length), prefix, {}},
                std::span(marks).subspan(first * mark_columns, length * mark_columns));
  }
  return marks;
}

Tensor mark_tensor(const std::vector<std::int32_t>& marks) {
  const Shape shape{static_cast<std::int64_t>(marks.size()) / mark_columns, mark_columns};
  return {const_cast<std::int32_t*>(marks.data()), DType::i32, shape};
}

}  // namespace maestro::testing
