// SPDX-License-Identifier: Apache-2.0
// Several corpora as a single corpus, mixed by weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/text/prepared_corpus.hpp"

namespace maestro {

/// A corpus of a mixture, with its name in the job.
struct MixedPart {
  std::string name;
  double weight = 1;
  std::unique_ptr<PreparedCorpus> corpus;
  std::vector<std::string> teachers = {};  ///< sections that teach its samples; empty: all teachers
};

/// A split has the samples of all parts, part after part. A run visits the parts by the weights in sources().
class MixedCorpus final : public Corpus {
 public:
  /// Throws JobError if `parts` is empty or the parts have different tokenizers.
  explicit MixedCorpus(std::vector<MixedPart> parts);

  [[nodiscard]] std::uint64_t samples(Split split) const override;
  [[nodiscard]] std::vector<SampleSource> sources() const override;
  [[nodiscard]] std::uint32_t source(Split split, SampleId sample) const override { return place(split, sample).part; }
  [[nodiscard]] std::vector<SourceTeachers> teachers() const override;
  [[nodiscard]] std::int64_t length(Split split, SampleId sample) const override;
  [[nodiscard]] std::string origin(SampleId sample) const override {
    const Place at = place(Split::train, sample);
    return at.corpus->origin(at.sample);
  }
  [[nodiscard]] std::int64_t max_length() const override;
  [[nodiscard]] std::int64_t targets(Split split, SampleId sample) const override;
  [[nodiscard]] bool prompts_only() const override;
  [[nodiscard]] std::int64_t patch_columns() const override;
  [[nodiscard]] std::int64_t max_patches() const override;
  [[nodiscard]] std::int64_t max_visual() const override;
  [[nodiscard]] PictureGrids picture_grids() const override;
  [[nodiscard]] SamplePictures pictures(Split split, SampleId sample) const override {
    const Place at = place(split, sample);
    return at.corpus->pictures(split, at.sample);
  }
  void read_pictures(Split split, SampleId sample, std::span<float> pixels,
                     std::span<std::int32_t> places) const override {
    const Place at = place(split, sample);
    at.corpus->read_pictures(split, at.sample, pixels, places);
  }
  [[nodiscard]] bool mixes_rows() const override;
  void read_mix(Split split, SampleId sample, std::span<std::int32_t> sources,
                std::span<float> weights) const override {
    const Place at = place(split, sample);
    at.corpus->read_mix(split, at.sample, sources, weights);
  }
  [[nodiscard]] bool has_marks() const override;
  [[nodiscard]] bool rewrites_tokens() const override;
  void read_marks(Split split, SampleId sample, std::span<std::int32_t> marks) const override {
    const Place at = place(split, sample);
    at.corpus->read_marks(split, at.sample, marks);
  }
  [[nodiscard]] Status prepare(Split split, SampleId sample) const override {
    const Place at = place(split, sample);
    return at.corpus->prepare(split, at.sample);
  }
  [[nodiscard]] std::int64_t vocabulary() const override;
  [[nodiscard]] std::string own_tokenizer() const override { return parts_.front().corpus->own_tokenizer(); }
  [[nodiscard]] std::string describe() const override;
  /// Returns the parts' fingerprints with names and weights.
  [[nodiscard]] DataFingerprint fingerprint() const override;

 private:
  struct Place {
    const PreparedCorpus* corpus;
    SampleId sample;
    std::uint32_t part;
  };
  void check_processors() const;
  /// Returns the part with the sample. Throws std::out_of_range for an unknown sample.
  [[nodiscard]] Place place(Split split, SampleId sample) const;
  void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override;

  std::vector<MixedPart> parts_;
};

}  // namespace maestro
