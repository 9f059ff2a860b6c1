// SPDX-License-Identifier: Apache-2.0
// The source of samples: a corpus has a training and a validation split, each of numbered samples.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/data/image/patches.hpp"
#include "runtime/data/sample_index.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/job/config.hpp"

namespace maestro {

/// A target that the loss ignores.
inline constexpr std::int32_t ignored_target = -1;
/// The token of a position that an image patch takes.
inline constexpr std::int32_t image_token = -1;

/// The properties that determine the samples of a corpus, by name: settings, counts, and under "content" a checksum.
/// Names of files and folders do not count, so that data may move.
using DataFingerprint = std::map<std::string, std::string>;

/// A source of a mixture and the sections that teach its samples; no section: all that there are.
struct SourceTeachers {
  std::string source;
  std::vector<std::string> teachers;
};

struct SamplePictures {
  std::int64_t images = 0;
  std::int64_t patches = 0;
};

/// Immutable after construction: every member is thread-safe. Two corpora opened with the same settings on the same
/// files hold the same samples under the same ids, in every process.
class Corpus {
 public:
  virtual ~Corpus() = default;
  /// Returns the number of samples; ids are [0, samples).
  [[nodiscard]] virtual std::uint64_t samples(Split split) const = 0;
  /// Returns the positions of a sample, in [2, max_length()]. Throws std::out_of_range when there is no such sample.
  [[nodiscard]] virtual std::int64_t length(Split split, SampleId sample) const = 0;
  /// Returns the sources of the training split, whose samples stand one behind the other, for Sampler.
  [[nodiscard]] virtual std::vector<SampleSource> sources() const { return {{samples(Split::train), 1.0}}; }
  /// Returns the number of a sample's source among sources(), of either split.
  [[nodiscard]] virtual std::uint32_t source(Split /*split*/, SampleId /*sample*/) const { return 0; }
  /// Returns the teachers of each of the sources(); nothing: all teachers teach all samples.
  [[nodiscard]] virtual std::vector<SourceTeachers> teachers() const { return {}; }
  /// Returns the most positions of any sample, for the size of buffers. Visits every sample unless overridden.
  [[nodiscard]] virtual std::int64_t max_length() const;
  /// Returns the file that a training sample begins in and its place there, for a person: "corpus.txt, token 320";
  /// empty: it is from no file.
  [[nodiscard]] virtual std::string origin(SampleId /*sample*/) const { return {}; }
  /// Returns how many of them have a target (the loss is a mean over these).
  [[nodiscard]] virtual std::int64_t targets(Split split, SampleId sample) const { return length(split, sample); }

  // ---- pictures; a corpus of text has none ----
  /// Returns the elements of a patch, 3 x patch x patch in (channel, row, column) order; 0: this corpus has no
  /// pictures.
  [[nodiscard]] virtual std::int64_t patch_columns() const { return 0; }
  /// Returns the most patches of any sample.
  [[nodiscard]] virtual std::int64_t max_patches() const { return 0; }
  /// Returns the grids of the pictures of all samples, for the size of position tables.
  [[nodiscard]] virtual PictureGrids picture_grids() const { return {}; }
  /// Returns the images and patches of a sample. A sample with n patches has exactly n positions whose token is
  /// `image_token`.
  [[nodiscard]] virtual SamplePictures pictures(Split /*split*/, SampleId /*sample*/) const { return {}; }
  /// Fills pixels (P, patch_columns), in [-1, 1], and places (P, 3): number of the image in its sample, row and column
  /// of the patch in it. Throws std::invalid_argument for spans of another size.
  virtual void read_pictures(Split split, SampleId sample, std::span<float> pixels,
                             std::span<std::int32_t> places) const;
  /// Ensures that the sample can be read (decodes its pictures ahead of time); the error names file and sample, and the
  /// caller then skips the sample. Called before a sample is announced.
  [[nodiscard]] virtual Status prepare(Split /*split*/, SampleId /*sample*/) const { return {}; }
  /// Returns the number of invalid samples that were skipped at opening.
  [[nodiscard]] virtual std::uint64_t left_out() const { return 0; }

  /// Fills tokens (T) and targets (T), T >= length; targets[i] is the token after tokens[i]. Beyond the length tokens
  /// are 0 and targets `ignored_target`. Throws std::out_of_range when there is no such sample and
  /// std::invalid_argument when the spans differ in size or are too short.
  void read(Split split, SampleId sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;
  /// Tokens are in [0, vocabulary), or `image_token`.
  [[nodiscard]] virtual std::int64_t vocabulary() const = 0;
  /// Returns the tokenizer that comes with the data, as make_tokenizer() takes it; empty: none does.
  [[nodiscard]] virtual std::string own_tokenizer() const { return {}; }
  /// Returns a line for the run header: the data, its size, and the samples that were skipped.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Returns counts and sizes, unless overridden: every corpus adds its other properties. Two corpora with the same
  /// fingerprint hold the same samples.
  [[nodiscard]] virtual DataFingerprint fingerprint() const;

 private:
  /// Spans have exactly length(split, sample) elements.
  virtual void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                          std::span<std::int32_t> targets) const = 0;
};

/// Returns the kind of the data at a path, by content: prepared data, conversations in rows, or text. A folder holds
/// rows where its files of rows are larger than its plain texts.
[[nodiscard]] DataKind kind_of_data(const std::string& path);

/// Opens the corpus that [data] describes; `seed` matters for the synthetic kinds only. Rows of files are prepared in
/// DataConfig::work_folder first, unless they are there as the job wants them; `note` receives lines about that. Throws
/// JobError: unknown kind or tokenizer (with the nearest valid name), missing, empty, binary or too short text, and the
/// errors of LlavaCorpus, PreparedCorpus and prepare_data().
[[nodiscard]] std::unique_ptr<Corpus> open_corpus(const DataConfig& config, std::uint64_t seed,
                                                  const std::function<void(const std::string&)>& note = {});

}  // namespace maestro
