// SPDX-License-Identifier: Apache-2.0
// The text of SyntheticCorpus, with an image of noise before some samples: a corpus for measurements.
//
// SY-1 (even share): 8 x image_share of the eight samples 8k .. 8k + 7 have an image. If that is not an integer, it is
//       rounded down or up, such that many groups together have exactly the share.
#pragma once

#include "runtime/data/corpus.hpp"
#include "runtime/data/synthetic/synthetic_corpus.hpp"

namespace maestro {

struct SyntheticImageOptions {
  SyntheticOptions text;         ///< options of the text; `sequence` does not count the image's positions
  std::int64_t patch = 8;        ///< pixels
  std::int64_t image_size = 64;  ///< pixels a side, a multiple of patch
  double image_share = 0.5;      ///< in [0, 1]
};

/// A sample depends on (seed, split, id) only. A sample with an image begins with (image_size / patch)^2 image
/// positions without targets; the text follows.
class SyntheticImageCorpus final : public Corpus {
 public:
  /// Throws JobError if an option is out of range.
  explicit SyntheticImageCorpus(const SyntheticImageOptions& options);

  [[nodiscard]] std::uint64_t samples(Split split) const override { return text_.samples(split); }
  [[nodiscard]] std::int64_t length(Split split, SampleId sample) const override;
  /// Returns the longest text plus an image.
  [[nodiscard]] std::int64_t max_length() const override { return text_.max_length() + max_patches(); }
  [[nodiscard]] std::int64_t targets(Split split, SampleId sample) const override {
    return text_.length(split, sample);
  }
  [[nodiscard]] std::int64_t patch_columns() const override { return 3 * options_.patch * options_.patch; }
  [[nodiscard]] std::int64_t max_patches() const override;
  [[nodiscard]] PictureGrids picture_grids() const override;
  [[nodiscard]] SamplePictures pictures(Split split, SampleId sample) const override;
  /// Fills pixels with values that are uniform in [-1, 1].
  void read_pictures(Split split, SampleId sample, std::span<float> pixels,
                     std::span<std::int32_t> places) const override;
  [[nodiscard]] std::int64_t vocabulary() const override { return text_.vocabulary(); }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] DataFingerprint fingerprint() const override;

 private:
  [[nodiscard]] std::int64_t patches() const;
  [[nodiscard]] bool has_picture(Split split, SampleId sample) const;
  void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override;

  SyntheticImageOptions options_;
  SyntheticCorpus text_;
};

}  // namespace maestro
