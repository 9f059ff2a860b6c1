// SPDX-License-Identifier: Apache-2.0
// The source of samples: a corpus has a training split and a validation split with numbered samples.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/data/image/patches.hpp"
#include "runtime/data/sample_index.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/job/config.hpp"

namespace maestro {

/// The target of a position that the loss ignores.
inline constexpr std::int32_t ignored_target = -1;
/// The token of a position with an image patch.
inline constexpr std::int32_t image_token = -1;
/// The token of a position with a row of a sound, if the corpus has images, too.
inline constexpr std::int32_t sound_token = -2;

/// The properties that determine the samples of a corpus, by name: settings, counts, and a checksum named "content".
/// Names of files and folders are not included, so that data may be moved.
using DataFingerprint = std::map<std::string, std::string>;

/// Columns of Corpus::read_marks().
inline constexpr std::int64_t mark_columns = 4;

/// A source of a mixture and the sections that teach its samples; empty: all teachers.
struct SourceTeachers {
  std::string source;
  std::vector<std::string> teachers;
};

/// A sample's images in numbers.
struct SamplePictures {
  std::int64_t images = 0;   ///< tiles, which the encoder sees separately
  std::int64_t patches = 0;  ///< rows of the encoder: patches and class rows
  std::int64_t visual = 0;   ///< positions whose token is `image_token`
};

/// Immutable after construction: every member is thread-safe. Two corpora that are opened with the same settings on the
/// same files have the same samples under the same ids, in every process.
class Corpus {
 public:
  virtual ~Corpus() = default;
  /// Returns the number of samples; ids are [0, samples).
  [[nodiscard]] virtual std::uint64_t samples(Split split) const = 0;
  /// Returns the positions of a sample, in [2, max_length()]. Throws std::out_of_range for an unknown sample.
  [[nodiscard]] virtual std::int64_t length(Split split, SampleId sample) const = 0;
  /// Returns the sources of the training split, for Sampler. Their samples have consecutive ids, source after source.
  [[nodiscard]] virtual std::vector<SampleSource> sources() const { return {{samples(Split::train), 1.0}}; }
  /// Returns the index in sources() of a sample's source, for either split.
  [[nodiscard]] virtual std::uint32_t source(Split /*split*/, SampleId /*sample*/) const { return 0; }
  /// Returns the teachers of each source, in the order of sources(); empty: all teachers teach all samples.
  [[nodiscard]] virtual std::vector<SourceTeachers> teachers() const { return {}; }
  /// Returns the length of the longest sample, for buffer sizes. Visits every sample unless overridden.
  [[nodiscard]] virtual std::int64_t max_length() const;
  /// Returns the file and the position in it at which a training sample begins, for display: "corpus.txt, token 320";
  /// empty: the sample is not from a file.
  [[nodiscard]] virtual std::string origin(SampleId /*sample*/) const { return {}; }
  /// Returns the number of a sample's positions that have a target. The loss is a mean over these positions.
  [[nodiscard]] virtual std::int64_t targets(Split split, SampleId sample) const { return length(split, sample); }

  /// Returns whether samples are prompts without targets, which a generator continues.
  [[nodiscard]] virtual bool prompts_only() const { return false; }

  // ---- images, for corpora that have them ----
  /// Returns the elements of a patch, 3 x patch x patch in (channel, row, column) order; 0: a corpus without images.
  [[nodiscard]] virtual std::int64_t patch_columns() const { return 0; }
  /// Returns the most patches that a sample has.
  [[nodiscard]] virtual std::int64_t max_patches() const { return 0; }
  /// Returns the most visual rows that a sample has; more than max_patches() if a sample may have more of them than
  /// patches.
  [[nodiscard]] virtual std::int64_t max_visual() const { return max_patches(); }
  /// Returns the grids of all images, for the size of position tables.
  [[nodiscard]] virtual PictureGrids picture_grids() const { return {}; }
  /// Returns the numbers of a sample's images, patches and visual rows.
  [[nodiscard]] virtual SamplePictures pictures(Split /*split*/, SampleId /*sample*/) const { return {}; }
  /// Fills pixels (P, patch_columns), in [-1, 1], and places (P, 3): the image's number in the sample, and the patch's
  /// row and column in the image. Throws std::invalid_argument for spans of another size.
  virtual void read_pictures(Split split, SampleId sample, std::span<float> pixels,
                             std::span<std::int32_t> places) const;
  /// Returns whether visual rows are weighted sums of the encoder's rows, as read_mix() states them.
  [[nodiscard]] virtual bool mixes_rows() const { return false; }
  /// Fills sources (V, 4), rows of the sample's patches or -1 for the projector's learned row, and their weights (V,
  /// 4), for the sample's visual rows. Throws std::invalid_argument for spans of another size.
  virtual void read_mix(Split split, SampleId sample, std::span<std::int32_t> sources, std::span<float> weights) const;
  /// Returns whether positions have marks, as read_marks() states them.
  [[nodiscard]] virtual bool has_marks() const { return false; }
  /// Fills marks (T, 4) for the sample's tokens: three positions (time, row, column), and the number of tokens that the
  /// token sees, counted from the sample's first. The base class states a text's: token p is at (p, p, p) and sees
  /// p + 1 tokens. Throws std::invalid_argument for a span of another size.
  virtual void read_marks(Split split, SampleId sample, std::span<std::int32_t> marks) const;
  /// Ensures that the sample can be read (decodes its images ahead of time). Called before a sample is announced. The
  /// error names file and sample, and the caller then skips the sample.
  [[nodiscard]] virtual Status prepare(Split /*split*/, SampleId /*sample*/) const { return {}; }
  /// Returns the same samples as another model of the job (DataConfig::readers) reads them, with images as its
  /// processor cuts them; null: all models read this corpus.
  [[nodiscard]] const Corpus* other() const { return other_.get(); }
  /// Returns whether this corpus is another's other(), and the samples have tokens of their own.
  [[nodiscard]] virtual bool rewrites_tokens() const { return false; }
  /// Returns whether a section of DataConfig::readers reads other().
  [[nodiscard]] bool reads_other(const std::string& reader) const { return readers_.contains(reader); }
  /// Sets other(), and the sections that read it. Called before the corpus is shared.
  void read_also(std::unique_ptr<const Corpus> other, std::set<std::string> readers) {
    other_ = std::move(other);
    readers_ = std::move(readers);
  }
  /// Returns the same samples with their sounds as images, if the corpus has images and sounds; null: it does not have
  /// both. Tokens, lengths and targets are the same.
  [[nodiscard]] const Corpus* sounds() const { return sounds_.get(); }
  /// Sets sounds(). Called before the corpus is shared.
  void hear_also(std::unique_ptr<const Corpus> sounds) { sounds_ = std::move(sounds); }
  /// Returns the number of invalid samples that were skipped at opening.
  [[nodiscard]] virtual std::uint64_t left_out() const { return 0; }

  /// Fills tokens (T) and targets (T), T >= length; targets[i] is the token after tokens[i]. Beyond the length tokens
  /// are 0 and targets `ignored_target`. Throws std::out_of_range for an unknown sample, and std::invalid_argument if
  /// the spans differ in size or are too short.
  void read(Split split, SampleId sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;
  /// Returns the number of tokens: tokens are in [0, vocabulary), or `image_token` or `sound_token`.
  [[nodiscard]] virtual std::int64_t vocabulary() const = 0;
  /// Returns the tokenizer that the data include, as an argument of make_tokenizer(); empty: none.
  [[nodiscard]] virtual std::string own_tokenizer() const { return {}; }
  /// Returns a line for the run header: the data, its size, and the samples that were skipped.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Returns the properties that determine the samples; the base class returns counts and sizes, to which every corpus
  /// adds its other properties. Two corpora with the same fingerprint have the same samples.
  [[nodiscard]] virtual DataFingerprint fingerprint() const;

 private:
  /// Fills spans of exactly length(split, sample) elements.
  virtual void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                          std::span<std::int32_t> targets) const = 0;

  std::unique_ptr<const Corpus> other_;
  std::unique_ptr<const Corpus> sounds_;
  std::set<std::string> readers_;
};

/// Returns the kind of the data at a path, by content: prepared data, conversations in rows, or text. A folder counts
/// as rows if its files of rows are together larger than its plain texts.
[[nodiscard]] DataKind kind_of_data(const std::string& path);

/// Opens the corpus that [data] describes; only the synthetic kinds use `seed`. Rows of files are prepared in
/// DataConfig::work_folder first, unless it already has them with the same settings; `note` receives lines about that
/// and about samples that lack something. Throws JobError for an unknown kind or tokenizer (with the nearest valid
/// name), for a missing, empty, binary or too short text, and the errors of PreparedCorpus and prepare_data().
[[nodiscard]] std::unique_ptr<Corpus> open_corpus(const DataConfig& config, std::uint64_t seed,
                                                  const std::function<void(const std::string&)>& note = {});

}  // namespace maestro
