// SPDX-License-Identifier: Apache-2.0
// A teacher's outputs as a server returned them: each line is a JSON object for a sample, in the order of the records
// (OF-1). Row i of a sample is the distribution of the token after position i. Two forms:
//   {"ids": [...], "top_ids": [[...] ...], "logprobs": [[...] ...]}
//   {"prompt_token_ids": [...], "prompt_logprobs": [null, {"ID": {"logprob": x, ...} ...} ...]}   (vLLM)
// A line may also be a complete answer with the lists of the second form in choices[0]. Python's -Infinity is
// probability 0. Log-probabilities must have temperature 1: a line that states another temperature is refused. The ids
// are the sample's tokens, optionally followed by the target of its last position. The first form has a list for each
// position, or for each except the last. In the second form entry i + 1 is row i, so the last row is missing if the
// last target is. A missing row names no token and teaches nothing.
//
// SA-1 (checked ids): every id is compared with the job's token of the same sample and position; a difference is an
//       error that names file, line and position.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <memory>
#include <string>

#include "runtime/data/teacher/teacher_shards.hpp"
#include "runtime/dataset/byte_source.hpp"

namespace maestro {

/// Reads the file forward only. Not thread-safe.
class ServedTeacher {
 public:
  /// Throws JobError for a file that cannot be read.
  ServedTeacher(std::filesystem::path file, std::shared_ptr<const Corpus> corpus);

  /// Returns the rows of `samples`, which must follow the samples of earlier calls; lines in between are skipped
  /// without a check. Entries beyond the records.k likeliest are added to the rest. Throws JobError with file and line.
  [[nodiscard]] ShardRows rows(const TeacherRecords& records, TeacherRecords::Samples samples);
  /// Throws JobError if lines are missing, or follow the last sample's line.
  void finish(const TeacherRecords& records);

 private:
  /// Reads the next line. Throws JobError at the end of the file.
  void next_line();
  [[nodiscard]] std::string where() const { return file_.string() + ":" + std::to_string(line_); }
  void add_sample(const TeacherRecords& records, std::uint64_t number, ShardRows& rows) const;

  std::filesystem::path file_;
  std::shared_ptr<const Corpus> corpus_;  // shared with the caller, which compares fingerprints
  std::unique_ptr<TextStreamBuffer> bytes_;
  std::istream in_;
  std::string text_;        // latest line
  std::uint64_t line_ = 0;  // number of the latest line, from 1; it has sample line_ - 1
};

}  // namespace maestro
