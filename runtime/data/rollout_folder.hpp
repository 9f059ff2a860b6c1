// SPDX-License-Identifier: Apache-2.0
// The made samples of a run on disk, to be read back in place of generation: a folder with a safetensors file a step,
// 00000012.safetensors, of n samples by rising number:
//
//   numbers             i32 (n)    position in the step's batch
//   seeds               i64 (n)    bits of each sample's seed
//   stopped             u8 (n)     1: a stop token ended it
//   prompt_lengths      i32 (n)    tokens
//   completion_lengths  i32 (n)    tokens, the stop token included
//   prompts             i32        tokens of prompts, one after the other
//   completions         i32        all completions, one after the other
//   log_probabilities   f32        of each token of `completions`, as it was drawn
//
// Metadata: "format", "step", and "version", the step before which the trained section had the weights that made them.
//
// QR-1 (whole steps): a file has all made samples of its step, or is not there, even if the machine stops at any time.
// QR-2 (equal bytes): equal samples are written as equal bytes.
// QR-3 (fits or is refused): read() returns the expected samples, in their order; other samples are an error that names
//      file, step and sample.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/data/sample_store.hpp"

namespace maestro {

/// A made sample with the numbers that it was drawn by.
struct RecordedSample {
  std::uint32_t number = 0;  ///< position in the step's batch
  std::uint64_t seed = 0;
  bool stopped = false;  ///< whether a stop token ended it
  MadeSample sample;
  bool operator==(const RecordedSample&) const = default;
};
struct RecordedRollout {
  StepId step;
  StepId version;
  std::vector<RecordedSample> samples;  ///< samples by rising number, at least one
  bool operator==(const RecordedRollout&) const = default;
};

/// A sample that a job expects from the record.
struct ExpectedSample {
  std::uint32_t number = 0;
  std::span<const std::int32_t> prompt = {};
  std::int64_t most_tokens = 0;  ///< most tokens of the completion
};

/// Thread-safe.
class RolloutFolder {
 public:
  explicit RolloutFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  /// Returns the folder with the recorded samples of a run: `given`, or record/rollouts in the run's folder `given`.
  /// Errors (not_found): the folder does not exist, or lacks files of steps.
  [[nodiscard]] static Result<RolloutFolder> find(const std::filesystem::path& given);

  /// Writes a step's file, in place of an earlier one, and makes a missing folder. System errors name the path.
  [[nodiscard]] Status write(const RecordedRollout& rollout) const;
  /// Reads the samples of a step. They must be the `expected` ones, sorted by number, and have tokens below
  /// `vocabulary`.
  /// Errors: not_found without the step's file; corrupt for a damaged file; invalid_argument for a sample that is not
  /// expected, or that is missing, has another prompt, more tokens or unknown ones.
  [[nodiscard]] Result<RecordedRollout> read(StepId step, std::span<const ExpectedSample> expected,
                                             std::int64_t vocabulary) const;
  [[nodiscard]] bool has(StepId step) const;
  [[nodiscard]] const std::filesystem::path& path() const { return folder_; }

 private:
  [[nodiscard]] std::filesystem::path file_of(StepId step) const;

  std::filesystem::path folder_;
};

inline constexpr const char* rollouts_folder = "rollouts";  ///< name in the record's folder

}  // namespace maestro
