// SPDX-License-Identifier: Apache-2.0
// The index of a teacher's recorded outputs: teacher.json. The shards are files in the same folder
// (teacher_shards.hpp).
//
// A row is a position of a sample. It has the teacher's likeliest tokens in descending order with their
// log-probabilities over the corpus' tokens, and the log-probability of all other tokens.
//
// OF-1 (sample order): shards have `shard_samples` samples each: first the training split by id, then the validation
//       split by id, in whatever order a run visits samples.
// OF-2 (same bytes): a shard's bytes depend only on the job and the settings in teacher.json, not on threads or stops:
//       a run that was stopped and continued writes the same shards as a run without a stop.
// OF-3 (refused by name): records of other data or another vocabulary, with a missing shard or a damaged file, are
//       refused before the first step, with a line that names the difference.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"

namespace maestro {

/// A finished shard.
struct RecordedShard {
  std::string file;  ///< name in the folder
  std::uint64_t rows = 0;
  std::uint64_t entries = 0;  ///< tokens named in all rows
  std::uint64_t bytes = 0;
  double rest = 0;       ///< sum over all rows: the probability of tokens without an entry
  std::string checksum;  ///< file's XXH3-128
};

/// The content of teacher.json.
struct TeacherRecords {
  std::int64_t k = 0;           ///< most entries in a row
  double p = 1;                 ///< sum of probabilities at which a row ends (at most k entries); 1: k entries
  std::int64_t vocabulary = 0;  ///< corpus' vocabulary: entries are below it
  std::map<std::string, std::string> teacher;  ///< properties that identify the teacher, by name
  DataFingerprint data;
  std::uint64_t training_samples = 0;
  std::uint64_t validation_samples = 0;
  std::uint64_t shard_samples = 0;
  std::vector<RecordedShard> shards;  ///< finished shards, in order

  [[nodiscard]] std::uint64_t samples() const { return training_samples + validation_samples; }
  /// Returns the number of shards in complete records.
  [[nodiscard]] std::uint64_t shard_count() const { return (samples() + shard_samples - 1) / shard_samples; }
  [[nodiscard]] bool complete() const { return shards.size() == shard_count(); }
  /// Returns the number of a sample in the order of the records (OF-1).
  [[nodiscard]] std::uint64_t number(Split split, SampleId sample) const {
    return sample.value() + (split == Split::train ? 0 : training_samples);
  }
  /// The samples of a shard: numbers [first, first + count).
  struct Samples {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  [[nodiscard]] Samples samples_of(std::uint64_t shard) const;
};

inline constexpr std::string_view teacher_records_file = "teacher.json";
/// Returns "teacher-00000.safetensors".
[[nodiscard]] std::string shard_name(std::uint64_t shard);

/// Returns the first difference between the records' data and a corpus, such as "data.sequence is 32, but the corpus
/// has 64"; empty: none.
[[nodiscard]] std::string data_difference(const TeacherRecords& records, const DataFingerprint& corpus);
/// Returns the first difference, except in shards, between stored records and the records a run would make; empty:
/// none.
[[nodiscard]] std::string difference(const TeacherRecords& stored, const TeacherRecords& wanted);

[[nodiscard]] std::string records_text(const TeacherRecords& records);
/// Parses records_text(); errors call the text `where`.
[[nodiscard]] Result<TeacherRecords> parse_records(std::string_view text, std::string_view where);
/// Reads teacher.json from a folder. Error not_found: the folder does not have it.
[[nodiscard]] Result<TeacherRecords> load_records(const std::filesystem::path& folder);
/// Writes teacher.json atomically (AF-1).
[[nodiscard]] Status save_records(const TeacherRecords& records, const std::filesystem::path& folder);

}  // namespace maestro
