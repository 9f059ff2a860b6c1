// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "runtime/core/nearest_name.hpp"
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
  if (config.kind == "text") return std::make_unique<TextCorpus>(config);
  if (config.kind == "llava") return std::make_unique<LlavaCorpus>(config);
  if (config.kind == "synthetic") return std::make_unique<SyntheticCorpus>(synthetic_text(config, seed));
  if (config.kind == "synthetic_images") {
    return std::make_unique<SyntheticImageCorpus>(
        SyntheticImageOptions{synthetic_text(config, seed), config.patch, config.image_size, config.image_share});
  }
  const std::array<std::string, 4> kinds{"text", "synthetic", "llava", "synthetic_images"};
  const auto nearest = nearest_name(config.kind, kinds);
  throw JobError("[data] kind = \"" + config.kind + "\" is unknown; " +
                 (nearest ? "the nearest valid kind is \"" + *nearest + "\""
                          : "valid are \"text\", \"llava\", \"synthetic\" and \"synthetic_images\""));
}

}  // namespace maestro
