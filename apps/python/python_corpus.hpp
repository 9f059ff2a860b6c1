// SPDX-License-Identifier: Apache-2.0
// A corpus with samples from a Python object.
//
// YC-2 (checked samples): if Python raises for a sample, or if the sample has other sizes than promised or invalid
//       tokens, the error names split and sample.
#pragma once

#include <nanobind/nanobind.h>
#include <maestro/data_source.hpp>
#include <mutex>
#include <utility>

namespace maestro::python {

/// Thread-safe. Calls samples(split), length(split, sample), read(split, sample), describe() and fingerprint() of
/// `source`, a maestro.Corpus, and reads its attribute vocabulary.
class PythonCorpus final : public Corpus {
 public:
  /// The caller must hold the interpreter's lock. Throws JobError for an invalid source.
  explicit PythonCorpus(nanobind::object source);
  ~PythonCorpus() override;

  [[nodiscard]] std::uint64_t samples(Split split) const override;
  [[nodiscard]] std::int64_t length(Split split, SampleId sample) const override;
  [[nodiscard]] std::int64_t targets(Split split, SampleId sample) const override;
  [[nodiscard]] Status prepare(Split split, SampleId sample) const override;
  [[nodiscard]] std::int64_t vocabulary() const override { return vocabulary_; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] DataFingerprint fingerprint() const override;

 private:
  struct Sample {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
  };
  void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override;
  /// Returns a sample from the cache or from Python. Throws JobError (YC-2).
  [[nodiscard]] std::shared_ptr<const Sample> sample_of(Split split, SampleId sample) const;
  [[nodiscard]] Sample read_by_python(Split split, SampleId sample) const;

  nanobind::object source_;
  std::int64_t vocabulary_ = 0;
  std::uint64_t training_samples_ = 0;
  std::uint64_t validation_samples_ = 0;
  mutable std::mutex mutex_;  // guards the members below
  /// Recently read samples, because the section's process reads an announced sample again.
  mutable std::map<std::pair<Split, SampleId>, std::shared_ptr<const Sample>> cache_;
};

}  // namespace maestro::python
