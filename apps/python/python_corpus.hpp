// SPDX-License-Identifier: Apache-2.0
// A corpus whose samples a Python object has.
//
// YC-1 (the lock of the interpreter): every call takes it, so that any thread of a run may read. No other lock is held
//       meanwhile.
// YC-2 (checked samples): a sample that Python raises for, or that has other sizes or tokens than it promises, is an
//       error that names split and sample.
#pragma once

#include <nanobind/nanobind.h>
#include <maestro/data_source.hpp>
#include <mutex>
#include <utility>

namespace maestro::python {

/// Thread-safe. Calls of `source`, of class maestro.Corpus: samples(split), length(split, sample), read(split, sample),
/// describe(), fingerprint(), and the attribute vocabulary.
class PythonCorpus final : public Corpus {
 public:
  /// The caller holds the interpreter's lock. Throws JobError for a source that is none.
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
  /// Returns a sample that the cache holds, or that Python reads. Throws JobError (YC-2).
  [[nodiscard]] std::shared_ptr<const Sample> sample_of(Split split, SampleId sample) const;
  [[nodiscard]] Sample read_by_python(Split split, SampleId sample) const;

  nanobind::object source_;
  std::int64_t vocabulary_ = 0;
  std::uint64_t training_samples_ = 0;
  std::uint64_t validation_samples_ = 0;
  mutable std::mutex mutex_;  // guards the members below
  /// Of samples that were read lately: an announced sample is read again by the section's process.
  mutable std::map<std::pair<Split, SampleId>, std::shared_ptr<const Sample>> cache_;
};

}  // namespace maestro::python
