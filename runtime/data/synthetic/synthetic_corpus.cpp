// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/synthetic/synthetic_corpus.hpp"

#include <stdexcept>

#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {
constexpr std::uint64_t length_stream = 0x6c656e67;  // separate from the stream of the text
}

SyntheticCorpus::SyntheticCorpus(const SyntheticOptions& options) : options_(options) {
  if (options.sequence < 2) {
    throw JobError("[data] sequence = " + std::to_string(options.sequence) + " is too short; the least is 2");
  }
  constexpr std::int64_t most = std::int64_t{1} << 24;
  if (options.vocabulary < 2 || options.vocabulary > most) {
    throw JobError("[data] vocabulary = " + std::to_string(options.vocabulary) +
                   " is out of range; a synthetic corpus takes 2 to " + std::to_string(most));
  }
}

std::uint64_t SyntheticCorpus::samples(Split split) const {
  return split == Split::train ? options_.train_samples : options_.validation_samples;
}

std::int64_t SyntheticCorpus::length(Split split, SampleId sample) const {
  if (sample.value() >= samples(split)) {
    throw std::out_of_range("sample " + std::to_string(sample.value()) + " of " + std::to_string(samples(split)));
  }
  if (!options_.lengths) return options_.sequence;
  Random random(mix64(options_.seed, length_stream + static_cast<std::uint64_t>(split)), sample.value());
  return options_.lengths->at(1 - random.uniform());
}

void SyntheticCorpus::read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                                 std::span<std::int32_t> targets) const {
  Random random(mix64(options_.seed, static_cast<std::uint64_t>(split)), sample.value());
  const auto vocabulary = static_cast<std::uint64_t>(options_.vocabulary);
  std::uint64_t current = random.below(vocabulary);
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    tokens[at] = static_cast<std::int32_t>(current);
    current = (5 * current + 7 + random.below(4)) % vocabulary;
    targets[at] = static_cast<std::int32_t>(current);
  }
}

DataFingerprint SyntheticCorpus::fingerprint() const {
  DataFingerprint made = Corpus::fingerprint();
  made.insert({{"data.kind", "synthetic"},
               {"seed", std::to_string(options_.seed)},
               options_.lengths ? std::pair("data.lengths", options_.lengths->text())
                                : std::pair("data.sequence", std::to_string(options_.sequence))});
  return made;
}

std::string SyntheticCorpus::describe() const {
  std::string lengths = std::to_string(options_.sequence);
  if (options_.lengths) {
    lengths = std::to_string(options_.lengths->least()) + " to " + std::to_string(options_.lengths->most());
  }
  return "synthetic text: vocabulary " + std::to_string(options_.vocabulary) + ", seed " +
         std::to_string(options_.seed) + ", " + std::to_string(options_.train_samples) + " training and " +
         std::to_string(options_.validation_samples) + " validation samples of " + lengths + " tokens";
}

}  // namespace maestro
