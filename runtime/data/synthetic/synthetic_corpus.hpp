// SPDX-License-Identifier: Apache-2.0
// Learnable synthetic text: next = (5 * current + 7 + r) mod vocabulary, r uniform in 0..3. The best possible loss is
// ln 4 = 1.386 nats per token (for vocabularies of at least 4).
#pragma once

#include <optional>

#include "runtime/data/corpus.hpp"
#include "runtime/data/synthetic/length_distribution.hpp"

namespace maestro {

struct SyntheticOptions {
  std::uint64_t seed = 1;
  std::int64_t sequence = 128;                           ///< positions of every sample, without `lengths`
  std::optional<LengthDistribution> lengths = {};        ///< distribution of the samples' positions
  std::int64_t vocabulary = 256;                         ///< 2 to 2^24
  std::uint64_t train_samples = std::uint64_t{1} << 20;  ///< number of samples, which take no memory
  std::uint64_t validation_samples = 4096;
};

/// A sample depends on (seed, split, id) only.
class SyntheticCorpus final : public Corpus {
 public:
  /// Throws JobError if an option is out of range.
  explicit SyntheticCorpus(const SyntheticOptions& options);

  [[nodiscard]] std::uint64_t samples(Split split) const override;
  [[nodiscard]] std::int64_t length(Split split, SampleId sample) const override;
  [[nodiscard]] std::int64_t max_length() const override {
    return options_.lengths ? options_.lengths->most() : options_.sequence;
  }
  [[nodiscard]] std::int64_t vocabulary() const override { return options_.vocabulary; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] DataFingerprint fingerprint() const override;

 private:
  void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override;

  SyntheticOptions options_;
};

}  // namespace maestro
