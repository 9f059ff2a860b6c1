// SPDX-License-Identifier: Apache-2.0
// The shards of a teacher on file (teacher_records.hpp): safetensors of
//   ids       (E) I32   named tokens, row by row, likeliest first
//   logprobs  (E) F16   their log-probabilities over the corpus' tokens
//   counts    (R) U8    entries of each row; I32 where k is above 255
//   rest      (R) F16   log-probability of all tokens that are not named: rounded log-probabilities do not sum up to 1
//                       well enough to derive it
//   offsets   (S) I64   first row of each sample
// No log-probability is below least_log_probability.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/teacher/teacher_records.hpp"
#include "runtime/files/safetensors.hpp"

namespace maestro {

/// Rows of k entries, by columns of the tensors that sections exchange. An entry behind the last of a row has index -1
/// and value least_log_probability.
struct RecordedRows {
  std::span<float> values;          ///< (rows, k) log-probabilities
  std::span<std::int32_t> indices;  ///< (rows, k)
  std::span<float> rest;            ///< (rows)
};

/// Rows on their way into a shard.
class ShardRows {
 public:
  /// `p`: see TeacherRecords.
  ShardRows(std::int64_t k, double p) : k_(k), p_(p) {}
  /// Begins a sample, whose rows follow.
  void begin_sample() { offsets_.push_back(static_cast<std::int64_t>(counts_.size())); }
  /// Adds a row: log-probabilities in descending order, their tokens, at most k, and that of all others.
  void add(std::span<const float> values, std::span<const std::int32_t> indices, float rest);
  /// Adds the samples of `more`.
  void append(const ShardRows& more);
  /// Writes the shard whole (AF-1, whole or old).
  [[nodiscard]] Result<RecordedShard> write(const std::filesystem::path& folder, std::uint64_t shard);

 private:
  std::int64_t k_;
  double p_;
  std::vector<std::int32_t> ids_;
  std::vector<float> logprobs_;
  std::vector<std::int32_t> counts_;
  std::vector<float> rest_;
  std::vector<std::int64_t> offsets_;
  double rest_sum_ = 0;  // of probabilities
};

/// The complete records of a folder, mapped and read where touched. Immutable: every member is thread-safe.
class TeacherShards {
 public:
  enum class Check : std::uint8_t {
    structure,  ///< sizes, shapes and offsets of all shards
    content     ///< the checksum of every file, too: reads all of them
  };
  /// Errors name the file: it is missing, of another size, damaged, or the records are not complete.
  [[nodiscard]] static Result<TeacherShards> open(const std::filesystem::path& folder, Check check);

  [[nodiscard]] const TeacherRecords& records() const { return records_; }
  /// Fills the rows of a sample. Errors: the sample has another number of rows, or an entry is outside the vocabulary.
  [[nodiscard]] Status read(Split split, SampleId sample, const RecordedRows& rows) const;
  /// Returns a fingerprint of all shards.
  [[nodiscard]] std::string fingerprint() const;

 private:
  struct Shard {
    SafetensorsFile file;
    std::vector<std::int64_t> entries;  // first entry of each sample, and the end
    std::span<const std::int64_t> offsets;
    ConstTensor ids, counts;
  };
  TeacherShards() = default;
  [[nodiscard]] Result<Shard> open_shard(const std::filesystem::path& folder, std::uint64_t number, Check check) const;
  [[nodiscard]] Status index(Shard& shard, const RecordedShard& recorded) const;

  TeacherRecords records_;
  std::vector<Shard> shards_;
};

}  // namespace maestro
