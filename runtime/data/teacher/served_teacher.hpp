// SPDX-License-Identifier: Apache-2.0
// What a server gave of a teacher: a JSON object a line, a line for each sample in the order of the records (OF-1). Row
// i of a sample is the distribution of the token behind its position i. Two forms:
//   {"ids": [...], "top_ids": [[...] ...], "logprobs": [[...] ...]}
//   {"prompt_token_ids": [...], "prompt_logprobs": [null, {"ID": {"logprob": x, ...} ...} ...]}   (vLLM)
// The second form is also read from choices[0] of an answer that is whole. -Infinity, as Python writes it, is
// probability 0. The log-probabilities are of temperature 1: a line that states another one is refused. The ids are the
// sample's tokens, with or without the target of its last position behind them; the first form has a list for each
// position, or for each but the last. In the second, entry i + 1 is row i: without the last target the last row is
// missing. A missing row names no token and teaches nothing.
//
// SA-1 (checked ids): every id is compared with the job's token of the same sample and position, and a difference is
//       refused by file, line and position.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <memory>
#include <string>

#include "runtime/data/teacher/teacher_shards.hpp"
#include "runtime/dataset/byte_source.hpp"

namespace maestro {

/// Reads forward only. Not thread-safe.
class ServedTeacher {
 public:
  /// Throws JobError for a file that cannot be read.
  ServedTeacher(std::filesystem::path file, std::shared_ptr<const Corpus> corpus);

  /// Returns the rows of samples that no earlier call has passed; lines before them are skipped unread. Entries beyond
  /// records.k, the least likely, are added to the rest. Throws JobError with file and line.
  [[nodiscard]] ShardRows rows(const TeacherRecords& records, TeacherRecords::Samples samples);
  /// Throws JobError when lines are missing, or left behind the last sample.
  void finish(const TeacherRecords& records);

 private:
  /// Throws JobError at the end of the file.
  void next_line();
  [[nodiscard]] std::string where() const { return file_.string() + ":" + std::to_string(line_); }
  void add_sample(const TeacherRecords& records, std::uint64_t number, ShardRows& rows) const;

  std::filesystem::path file_;
  std::shared_ptr<const Corpus> corpus_;  // shared with the caller, which compares fingerprints
  std::unique_ptr<TextStreamBuffer> bytes_;
  std::istream in_;
  std::string text_;        // of the latest line
  std::uint64_t line_ = 0;  // its number, from 1: that of the sample it holds
};

}  // namespace maestro
