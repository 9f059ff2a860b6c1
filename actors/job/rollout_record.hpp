// SPDX-License-Identifier: Apache-2.0
// The made samples of a run outside its memory: kept in the run's folder, read back from another run's, and shown as
// text after a validation.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/messages.hpp"
#include "runtime/data/rollout_folder.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

struct RolloutRecordOptions {
  std::filesystem::path keep;  ///< folder that the samples of each step are written to; empty: none
  std::filesystem::path read;  ///< a run whose samples are read in place of generation; empty: none
  std::int64_t show = 0;       ///< samples of a step that take_shown() has
  std::string tokenizer;       ///< tokenizer of the data; empty: tokens without text
};

/// Returns lengths, numbers of tokens, version and digest of a step's samples.
[[nodiscard]] MadeSamples summary_of(const RecordedRollout& rollout);

/// Not thread-safe.
class RolloutRecord {
 public:
  /// Throws JobError if the samples to read are not there, or for a tokenizer that cannot be read.
  explicit RolloutRecord(const RolloutRecordOptions& options);
  /// Returns whether samples are read back.
  [[nodiscard]] bool reads() const { return read_.has_value(); }
  /// Throws JobError as RolloutFolder::read().
  [[nodiscard]] RecordedRollout read(StepId step, const std::vector<ExpectedSample>& expected,
                                     std::int64_t vocabulary) const {
    return read_->read(step, expected, vocabulary).value_or_throw();
  }
  /// Takes the samples of a step. Throws JobError if they cannot be written.
  void keep(const RecordedRollout& rollout);
  /// Returns a line of record/rollouts.jsonl, once, about the step that keep() had last: {"step", "version", "samples":
  /// [{"number", "seed", "finish", "tokens", "log_probability" (mean over tokens), "prompt_ids", "ids", and with a
  /// tokenizer "prompt" and "text"}]}; empty: none. `seed` is a text, as many programs round such numbers.
  [[nodiscard]] std::string take_shown();

 private:
  std::optional<RolloutFolder> keep_, read_;
  std::size_t show_;
  std::unique_ptr<Tokenizer> tokenizer_;  // null: none
  RecordedRollout last_;                  // its first `show_` samples
};

}  // namespace maestro
