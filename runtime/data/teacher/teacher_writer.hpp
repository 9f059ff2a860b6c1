// SPDX-License-Identifier: Apache-2.0
// Makes the records of a teacher in a folder, shard by shard, so that a stopped run continues (OF-2, same bytes).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "runtime/data/teacher/teacher_shards.hpp"

namespace maestro {

struct ShardMaker {
  /// Returns the rows of a shard of the records; nothing when the run was stopped.
  std::function<std::optional<ShardRows>(const TeacherRecords& records, std::uint64_t shard)> rows;
  /// Called after each shard: kept from an earlier run, or written.
  std::function<void(const TeacherRecords& records, std::uint64_t shard, bool kept)> finished;
};

/// Writes the shards of `wanted` that `folder` lacks, or whose size or checksum is wrong, and teacher.json after each.
/// Returns the records, which are not complete when the run was stopped. Throws JobError for a folder with records of
/// another job, naming the first difference, for a folder that another process
/// writes to, and for a file that cannot be written.
TeacherRecords write_shards(const std::filesystem::path& folder, const TeacherRecords& wanted, const ShardMaker& maker);

}  // namespace maestro
