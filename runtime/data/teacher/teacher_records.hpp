// SPDX-License-Identifier: Apache-2.0
// The outputs of a teacher on file: what teacher.json in their folder states about them. The shards beside it:
// teacher_shards.hpp.
//
// A row is a position of a sample. It holds the teacher's likeliest tokens, descending, with their log-probabilities
// over the corpus' tokens, and the log-probability of all other tokens.
//
// OF-1 (sample order): shards hold the samples of the training split in order of their ids, then those of the
//       validation split, `shard_samples` each, whatever order a run visits them in.
// OF-2 (same bytes): a shard's bytes depend on the job and the settings of teacher.json alone, not on threads or stops:
//       shards of a run that was stopped and continued are those of an undisturbed run.
// OF-3 (refused by name): records of other data or another vocabulary, with a shard missing, or with a damaged file,
//       are refused before any step, by a line that names what differs.
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
  std::string file;  ///< its name in the folder
  std::uint64_t rows = 0;
  std::uint64_t entries = 0;  ///< tokens named, of all rows
  std::uint64_t bytes = 0;
  double rest = 0;       ///< sum over the rows of the probability that no entry has
  std::string checksum;  ///< XXH3-128 of the file
};

/// The content of teacher.json.
struct TeacherRecords {
  std::int64_t k = 0;           ///< most entries of a row
  double p = 1;                 ///< a row keeps the fewest entries whose probabilities reach it; 1: k of them
  std::int64_t vocabulary = 0;  ///< of the corpus: entries are below it
  std::map<std::string, std::string> teacher;  ///< its identity, by name
  DataFingerprint data;
  std::uint64_t training_samples = 0;
  std::uint64_t validation_samples = 0;
  std::uint64_t shard_samples = 0;
  std::vector<RecordedShard> shards;  ///< those finished, in order

  [[nodiscard]] std::uint64_t samples() const { return training_samples + validation_samples; }
  /// Of the complete records.
  [[nodiscard]] std::uint64_t shard_count() const { return (samples() + shard_samples - 1) / shard_samples; }
  [[nodiscard]] bool complete() const { return shards.size() == shard_count(); }
  /// Returns the number of a sample in the order of the records (OF-1).
  [[nodiscard]] std::uint64_t number(Split split, SampleId sample) const {
    return sample.value() + (split == Split::train ? 0 : training_samples);
  }
  /// Returns the samples of a shard: numbers from first on.
  struct Samples {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  [[nodiscard]] Samples samples_of(std::uint64_t shard) const;
};

inline constexpr std::string_view teacher_records_file = "teacher.json";
/// Returns "teacher-00000.safetensors".
[[nodiscard]] std::string shard_name(std::uint64_t shard);

/// Returns the first difference between the data of records and a corpus, "data.sequence is 32, but the corpus has 64";
/// empty: none.
[[nodiscard]] std::string data_difference(const TeacherRecords& records, const DataFingerprint& corpus);
/// Returns the first difference between records on file and those that a run would make, shards apart; empty: none.
[[nodiscard]] std::string difference(const TeacherRecords& stored, const TeacherRecords& wanted);

[[nodiscard]] std::string records_text(const TeacherRecords& records);
/// `where` names the text in errors.
[[nodiscard]] Result<TeacherRecords> parse_records(std::string_view text, std::string_view where);
/// Reads teacher.json of a folder. Error not_found: the folder has none.
[[nodiscard]] Result<TeacherRecords> load_records(const std::filesystem::path& folder);
/// Writes teacher.json whole (AF-1, whole or old).
[[nodiscard]] Status save_records(const TeacherRecords& records, const std::filesystem::path& folder);

}  // namespace maestro
