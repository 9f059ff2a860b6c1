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

/// The process that holds a run folder's lock, as it has signed the lock's file.
struct RunHolder {
  std::string host, process, job, since;  ///< empty if it has not signed yet
  std::string address;                    ///< address of the run's control service; empty: none
};

/// A process's lock on a run folder, held while this object exists.
class RunLock {
 public:
  RunLock() = default;
  /// `signed_bytes`: the length of the holder's signature in the file.
  RunLock(FileDescriptor file, std::size_t signed_bytes) : file_(std::move(file)), signed_bytes_(signed_bytes) {}
  /// Returns false if the file system lacks locks: a second run is then not prevented.
  [[nodiscard]] bool holds() const { return static_cast<bool>(file_); }
  /// Writes the address of the run's control service into the lock's file, for clients that know only the folder.
  void note_address(const std::string& address) const;

 private:
  FileDescriptor file_;
  std::size_t signed_bytes_ = 0;
};

/// The folder of a run. Errors about it begin with "train.out". Not thread-safe.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Takes the lock, and makes a missing folder. The error names host, process and job that hold the lock.
  [[nodiscard]] Result<RunLock> lock(const std::string& job) const;
  /// Returns the result that lock() would return now, without making files.
  [[nodiscard]] Status check_free() const;
  /// Returns the process that holds the lock now; nothing if the folder is free (RF-1). Makes no files.
  [[nodiscard]] std::optional<RunHolder> holder() const;

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
  [[nodiscard]] RunHolder read_holder() const;
  [[nodiscard]] Error in_use() const;

  std::filesystem::path folder_;
};

}  // namespace maestro
