// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/data/llava_corpus.hpp"
#include "runtime/data/synthetic_corpus.hpp"
#include "runtime/data/synthetic_image_corpus.hpp"
#include "runtime/data/text_corpus.hpp"

namespace maestro {

std::int64_t Corpus::max_length() const {
  std::int64_t longest = 0;
  for (const Split split : {Split::train, Split::validation}) {
    for (std::uint64_t sample = 0; sample < samples(split); ++sample) {
      longest = std::max(longest, length(split, SampleId(sample)));
    }
  }
  return longest;
}

DataFingerprint Corpus::fingerprint() const {
  return {{"training samples", std::to_string(samples(Split::train))},
          {"validation samples", std::to_string(samples(Split::validation))},
          {"longest sample", std::to_string(max_length())},
          {"vocabulary", std::to_string(vocabulary())}};
}

void Corpus::read(Split split, SampleId sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::size_t>(this->length(split, sample));
  if (tokens.size() != targets.size() || tokens.size() < length) {
    throw std::invalid_argument("sample of " + std::to_string(length) + " positions read into spans of " +
                                std::to_string(tokens.size()) + " and " + std::to_string(targets.size()));
  }
  read_exact(split, sample, tokens.first(length), targets.first(length));
  std::ranges::fill(tokens.subspan(length), 0);
  std::ranges::fill(targets.subspan(length), ignored_target);
}

void Corpus::read_pictures(Split /*split*/, SampleId /*sample*/, std::span<float> pixels,
                           std::span<std::int32_t> places) const {
  if (!pixels.empty() || !places.empty()) throw std::invalid_argument("this corpus has no pictures");
}

namespace {

SyntheticOptions synthetic_text(const DataConfig& config, std::uint64_t seed) {
  SyntheticOptions options;
  options.seed = seed;
  options.sequence = config.sequence;
  options.vocabulary = config.vocabulary;
  return options;
}

}  // namespace

std::unique_ptr<Corpus> open_corpus(const DataConfig& config, std::uint64_t seed) {
  switch (config.kind) {
    case DataKind::text:
      return std::make_unique<TextCorpus>(config);
    case DataKind::llava:
      return std::make_unique<LlavaCorpus>(config);
    case DataKind::synthetic:
      return std::make_unique<SyntheticCorpus>(synthetic_text(config, seed));
    case DataKind::synthetic_images:
      break;
  }
  return std::make_unique<SyntheticImageCorpus>(
      SyntheticImageOptions{synthetic_text(config, seed), config.patch, config.image_size, config.image_share});
}

}  // namespace maestro
