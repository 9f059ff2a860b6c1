// SPDX-License-Identifier: Apache-2.0
// Writes a teacher's records to a folder, shard by shard, so that a stopped run can continue (OF-2, same bytes).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "runtime/data/teacher/teacher_shards.hpp"

namespace maestro {

struct ShardMaker {
  /// Returns the rows of a shard; nothing if the run was stopped.
  std::function<std::optional<ShardRows>(const TeacherRecords& records, std::uint64_t shard)> rows;
  /// Called after each shard; `kept`: an earlier run had written it.
  std::function<void(const TeacherRecords& records, std::uint64_t shard, bool kept)> finished;
};

/// Writes the shards of `wanted` that `folder` lacks, or whose size or checksum is wrong, and teacher.json after each
/// shard. Returns the records, which are incomplete if the run was stopped. Throws JobError for a folder with another
/// job's records, naming the first difference, for a folder that another process writes to, and for a file that cannot
/// be written.
TeacherRecords write_shards(const std::filesystem::path& folder, const TeacherRecords& wanted, const ShardMaker& maker);

}  // namespace maestro
