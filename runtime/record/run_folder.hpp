// SPDX-License-Identifier: Apache-2.0
// A run's folder, train.out: the run that it belongs to, and the process that writes to it.
//
// RF-1 (exclusive lock): while a folder's RunLock exists, lock() on the folder fails in every process. The lock ends
//       with the process that holds it; the content of its file is for people.
// RF-2 (one run): a run begins or continues in a folder only if all readable checkpoints and exports belong to it.
// RF-3 (nothing removed): no function here removes a file. set_aside() renames the files of an earlier run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/checkpoint/manifest.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {

/// Returns the identity of a run that begins now.
[[nodiscard]] RunIdentity new_run(std::string job);

/// A process's lock on a run folder, held while this object exists.
class RunLock {
 public:
  RunLock() = default;
  explicit RunLock(FileDescriptor file) : file_(std::move(file)) {}
  /// Returns false if the file system lacks locks: a second run is then not prevented.
  [[nodiscard]] bool holds() const { return static_cast<bool>(file_); }

 private:
  FileDescriptor file_;
};

/// The folder of a run. Errors about it begin with "train.out". Not thread-safe.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Takes the lock, and makes a missing folder. The error names host, process and job that hold the lock.
  [[nodiscard]] Result<RunLock> lock(const std::string& job) const;
  /// Returns the result that lock() would return now, without making files.
  [[nodiscard]] Status check_free() const;

  /// Checks RF-2 for the run with id `run`. The error names the other run.
  [[nodiscard]] Status check_holds_only(const std::string& run, bool resumed) const;
  /// Moves an earlier run's checkpoints, models, run.json, report, trace, page, card, record and curves to a new
  /// folder, <folder>.1 or the first free number, and returns this folder; nothing if there are neither checkpoints nor
  /// models. Errors are system errors.
  [[nodiscard]] Result<std::optional<std::filesystem::path>> set_aside() const;
  /// Writes run.json.
  [[nodiscard]] Status record(const RunIdentity& run) const;

 private:
  [[nodiscard]] std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }
  [[nodiscard]] std::filesystem::path aside(int number) const;
  /// Returns whether the folder has exports that belong to another run than `run`, by run.json.
  [[nodiscard]] bool has_models_of_other(const std::string& run) const;
  [[nodiscard]] Error in_use() const;

  std::filesystem::path folder_;
};

}  // namespace maestro
