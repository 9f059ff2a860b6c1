// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/synthetic/synthetic_image_corpus.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr std::uint64_t group = 8;
constexpr std::uint64_t choice_stream = 0x70696374;  // separate from the streams of text and noise
constexpr std::uint64_t noise_stream = 0x6e6f6973;

/// Returns the number of images in the first `groups` groups; it grows evenly.
std::uint64_t pictures_among(std::uint64_t groups, double share) {
  return static_cast<std::uint64_t>(std::floor(static_cast<double>(groups * group) * share + 1e-9));
}

}  // namespace

SyntheticImageCorpus::SyntheticImageCorpus(const SyntheticImageOptions& options)
    : options_(options), text_(options.text) {
  const auto refuse = [](const std::string& key, const std::string& value, const std::string& wanted) {
    throw JobError("[data] " + key + " = " + value + " is out of range; " + wanted);
  };
  if (options.patch < 1) refuse("patch", std::to_string(options.patch), "the least is 1 pixel");
  if (options.image_size < 1 || options.image_size % options.patch != 0) {
    refuse("image_size", std::to_string(options.image_size),
           "a synthetic image needs a multiple of patch = " + std::to_string(options.patch));
  }
  if (!(options.image_share >= 0.0 && options.image_share <= 1.0)) {
    refuse("image_share", std::to_string(options.image_share), "it must lie between 0 and 1");
  }
}

std::int64_t SyntheticImageCorpus::patches() const {
  const std::int64_t side = options_.image_size / options_.patch;
  return side * side;
}

std::int64_t SyntheticImageCorpus::max_patches() const {
  return options_.image_share > 0.0 ? patches() : 0;
}

PictureGrids SyntheticImageCorpus::picture_grids() const {
  PictureGrids grids;
  const std::int64_t side = options_.image_size / options_.patch;
  if (options_.image_share > 0.0) grids.add({side, side});
  return grids;
}

bool SyntheticImageCorpus::has_picture(Split split, SampleId sample) const {
  const std::uint64_t first = sample.value() / group * group;
  const std::uint64_t seed = mix64(options_.text.seed, choice_stream + static_cast<std::uint64_t>(split));
  const std::uint64_t own = mix64(seed, sample.value());
  std::uint64_t ahead = 0;  // samples in the same group that precede this sample in a shuffled order
  for (std::uint64_t other = first; other < first + group; ++other) {
    if (mix64(seed, other) < own) ++ahead;
  }
  const std::uint64_t before = sample.value() / group;
  return ahead < pictures_among(before + 1, options_.image_share) - pictures_among(before, options_.image_share);
}

SamplePictures SyntheticImageCorpus::pictures(Split split, SampleId sample) const {
  (void)text_.length(split, sample);  // throws for an unknown sample
  return has_picture(split, sample) ? SamplePictures{1, patches(), patches()} : SamplePictures{};
}

std::int64_t SyntheticImageCorpus::length(Split split, SampleId sample) const {
  return text_.length(split, sample) + pictures(split, sample).patches;
}

void SyntheticImageCorpus::read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                                      std::span<std::int32_t> targets) const {
  const std::size_t front = tokens.size() - static_cast<std::size_t>(text_.length(split, sample));
  std::ranges::fill(tokens.first(front), image_token);
  std::ranges::fill(targets.first(front), ignored_target);
  text_.read(split, sample, tokens.subspan(front), targets.subspan(front));
}

void SyntheticImageCorpus::read_pictures(Split split, SampleId sample, std::span<float> pixels,
                                         std::span<std::int32_t> places) const {
  const std::int64_t count = pictures(split, sample).patches;
  if (std::ssize(pixels) != count * patch_columns() || std::ssize(places) != count * 3) {
    throw std::invalid_argument(std::to_string(count) + " patches read into spans with " +
                                std::to_string(pixels.size()) + " and " + std::to_string(places.size()));
  }
  Random random(mix64(options_.text.seed, noise_stream + static_cast<std::uint64_t>(split)), sample.value());
  for (float& pixel : pixels) pixel = static_cast<float>(2.0 * random.uniform() - 1.0);
  const auto side = static_cast<std::int32_t>(options_.image_size / options_.patch);
  for (std::int32_t patch = 0; patch < static_cast<std::int32_t>(count); ++patch) {
    std::int32_t* place = places.data() + std::ptrdiff_t{patch} * 3;
    place[0] = 0;
    place[1] = patch / side;
    place[2] = patch % side;
  }
}

DataFingerprint SyntheticImageCorpus::fingerprint() const {
  DataFingerprint made = text_.fingerprint();
  made["data.kind"] = "synthetic_images";
  made["longest sample"] = std::to_string(max_length());
  made["data.patch"] = std::to_string(options_.patch);
  made["data.image_size"] = std::to_string(options_.image_size);
  made["data.image_share"] = std::to_string(options_.image_share);
  return made;
}

std::string SyntheticImageCorpus::describe() const {
  const std::string side = std::to_string(options_.image_size);
  return text_.describe() + ", " + std::to_string(std::lround(100.0 * options_.image_share)) +
         "% of them after an image of noise, " + side + " x " + side + " pixels in " + std::to_string(patches()) +
         " patches";
}

}  // namespace maestro
