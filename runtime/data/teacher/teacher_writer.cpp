// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/teacher/teacher_writer.hpp"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "runtime/core/printable.hpp"
#include "runtime/files/checksum.hpp"
#include "runtime/record/run_folder.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Returns the records of the folder, or `wanted` if it has none.
TeacherRecords begin(const fs::path& folder, const TeacherRecords& wanted) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw JobError("cannot make " + printable(folder.string()) + ": " + failure.message());
  const Result<TeacherRecords> stored = load_records(folder);
  if (!stored && stored.error().code == ErrorCode::not_found) return wanted;
  if (!stored) {
    throw JobError(stored.error().message + "; remove the folder's records, or name another folder",
                   stored.error().code);
  }
  const std::string other = difference(*stored, wanted);
  if (other.empty()) return *stored;
  throw JobError(printable(folder.string()) + " has records of another job: " + other +
                 "; name another folder, or run the job that made them");
}

/// Locks the folder against other writers until the result is destroyed.
RunLock lock(const fs::path& folder) {
  Result<RunLock> lock = RunFolder(folder).lock("teach");
  if (lock) return *std::move(lock);
  std::string reason = lock.error().message;
  constexpr std::string_view of_runs = "train.out: ";
  if (reason.starts_with(of_runs)) reason.erase(0, of_runs.size());
  throw JobError("cannot write records: " + reason, lock.error().code);
}

/// Removes unfinished files of a killed run: hidden files whose names contain the name of a shard or of teacher.json.
void sweep(const fs::path& folder) {
  std::error_code failure;
  fs::directory_iterator entries(folder, failure);
  for (; !failure && entries != fs::directory_iterator(); entries.increment(failure)) {
    const std::string name = entries->path().filename().string();
    std::error_code ignored;  // a file that stays is harmless
    if (name.starts_with(".teacher-") || name.starts_with(".teacher.json.")) fs::remove(entries->path(), ignored);
  }
}

bool is_there(const fs::path& folder, const RecordedShard& shard) {
  std::error_code failure;
  const std::uintmax_t bytes = fs::file_size(folder / shard.file, failure);
  if (failure || bytes != shard.bytes) return false;
  const Result<std::string> checksum = checksum_of_file(folder / shard.file);
  return checksum && *checksum == shard.checksum;
}

}  // namespace

TeacherRecords write_shards(const fs::path& folder, const TeacherRecords& wanted, const ShardMaker& maker) {
  (void)begin(folder, wanted);  // a folder with another job's records remains unchanged
  const RunLock only_writer = lock(folder);
  sweep(folder);
  TeacherRecords records = begin(folder, wanted);
  for (std::uint64_t number = 0; number < records.shard_count(); ++number) {
    const auto at = static_cast<std::size_t>(number);
    const bool kept = at < records.shards.size() && is_there(folder, records.shards[at]);
    if (!kept) {
      std::optional<ShardRows> rows = maker.rows(records, number);
      if (!rows) {  // stopped: records end before the first missing shard; the next run makes the later ones again
        records.shards.resize(std::min(at, records.shards.size()));
        return records;
      }
      const RecordedShard written = rows->write(folder, number).value_or_throw();
      if (at < records.shards.size()) {
        records.shards[at] = written;
      } else {
        records.shards.push_back(written);
      }
      save_records(records, folder).or_throw();
    }
    maker.finished(records, number, kept);
  }
  return records;
}

}  // namespace maestro
