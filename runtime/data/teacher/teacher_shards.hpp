// SPDX-License-Identifier: Apache-2.0
// The shards of a teacher's records (teacher_records.hpp): safetensors with
//   ids       (E) I32   named tokens, row by row, likeliest first
//   logprobs  (E) F16   their log-probabilities over the corpus' tokens
//   counts    (R) U8    entries of each row; I32 if k is above 255
//   rest      (R) F16   log-probability of all tokens that are not named; it cannot be derived, as log-probabilities
//   are
//                       rounded
//   offsets   (S) I64   first row of each sample
// Every log-probability is at least least_log_probability.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/teacher/teacher_records.hpp"
#include "runtime/files/safetensors.hpp"

namespace maestro {

/// Rows with k entries each, as the tensors that sections exchange. Entries after a row's last have index -1 and value
/// least_log_probability.
struct RecordedRows {
  std::span<float> values;          ///< (rows, k) log-probabilities
  std::span<std::int32_t> indices;  ///< (rows, k)
  std::span<float> rest;            ///< (rows)
};

/// Collects the rows of a shard and writes it.
class ShardRows {
 public:
  /// TeacherRecords describes `k` and `p`.
  ShardRows(std::int64_t k, double p) : k_(k), p_(p) {}
  /// Begins a sample, whose rows follow.
  void begin_sample() { offsets_.push_back(static_cast<std::int64_t>(counts_.size())); }
  /// Adds a row: at most k log-probabilities in descending order, their tokens, and the log-probability of all other
  /// tokens.
  void add(std::span<const float> values, std::span<const std::int32_t> indices, float rest);
  /// Adds the samples of `more`.
  void append(const ShardRows& more);
  /// Writes the shard atomically (AF-1).
  [[nodiscard]] Result<RecordedShard> write(const std::filesystem::path& folder, std::uint64_t shard);

 private:
  std::int64_t k_;
  double p_;
  std::vector<std::int32_t> ids_;
  std::vector<float> logprobs_;
  std::vector<std::int32_t> counts_;
  std::vector<float> rest_;
  std::vector<std::int64_t> offsets_;
  double rest_sum_ = 0;  // sum of probabilities without an entry
};

/// The complete records in a folder. Files are mapped and read on demand. Immutable: every member is thread-safe.
class TeacherShards {
 public:
  enum class Check : std::uint8_t {
    structure,  ///< shards' sizes, shapes and offsets
    content     ///< structure and checksums: reads every file
  };
  /// Opens all shards. An error names the file and the fault: it is missing, damaged or has another size, or the
  /// records are not complete.
  [[nodiscard]] static Result<TeacherShards> open(const std::filesystem::path& folder, Check check);

  [[nodiscard]] const TeacherRecords& records() const { return records_; }
  /// Fills the rows of a sample. Returns an error if the sample is unknown or has another number of rows, or if an
  /// entry is outside the vocabulary.
  [[nodiscard]] Status read(Split split, SampleId sample, const RecordedRows& rows) const;
  /// Returns a fingerprint of all shards.
  [[nodiscard]] std::string fingerprint() const;

 private:
  struct Shard {
    SafetensorsFile file;
    std::vector<std::int64_t> entries;  // first entry of each sample
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
