// SPDX-License-Identifier: Apache-2.0
// The folder of a run, train.out: which run it is of, and which process writes to it.
//
// RF-1 (exclusive lock): while a RunLock of a folder lives, lock() on it fails in every process. The lock ends with the
//       process that holds it; the content of its file is for people.
// RF-2 (one run): a run begins, or goes on, only where every readable checkpoint, and every export, is of that run.
// RF-3 (nothing removed): no function here removes a file. set_aside() renames the files of an earlier run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/checkpoint/manifest.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {

/// Of a run that begins now.
[[nodiscard]] RunIdentity new_run(std::string job);

/// A process's hold of a run folder, for as long as it lives.
class RunLock {
 public:
  RunLock() = default;
  explicit RunLock(FileDescriptor file) : file_(std::move(file)) {}
  /// False where the file system has no locks: nothing keeps a second run out.
  [[nodiscard]] bool holds() const { return static_cast<bool>(file_); }

 private:
  FileDescriptor file_;
};

/// Errors about the folder open with "train.out". Not thread-safe.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Takes the lock, making the folder when missing. The error names host, process and job that hold it.
  [[nodiscard]] Result<RunLock> lock(const std::string& job) const;
  /// Returns the result that lock() would have now, without making anything.
  [[nodiscard]] Status check_free() const;

  /// RF-2 for the run with the id `run`. The error names the other run.
  [[nodiscard]] Status check_holds_only(const std::string& run, bool resumed) const;
  /// Moves checkpoints, models, run.json, report, trace, page, card, record and curves of an earlier run to a new
  /// folder, <folder>.1 or the first number that is free, and returns that; nothing where there are neither checkpoints
  /// nor models. Errors are the system's.
  [[nodiscard]] Result<std::optional<std::filesystem::path>> set_aside() const;
  /// Writes run.json.
  [[nodiscard]] Status record(const RunIdentity& run) const;

 private:
  [[nodiscard]] std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }
  [[nodiscard]] std::filesystem::path aside(int number) const;
  /// Whether exports lie here that run.json does not ascribe to the run with the id `run`.
  [[nodiscard]] bool has_models_of_other(const std::string& run) const;
  [[nodiscard]] Error in_use() const;

  std::filesystem::path folder_;
};

}  // namespace maestro
