// SPDX-License-Identifier: Apache-2.0
// Files that appear completely or not at all.
//
// AF-1 (whole or old): under its final name a file contains either the old content or all of the new content, even if
//       the machine stops at any time.
// AF-2 (no leftovers): an AtomicFile that is destroyed without commit leaves no files.
// AF-3 (regular files only): only regular files are replaced. A device, a pipe, a terminal or /dev/stdout is written
//       directly and keeps its kind, without AF-1 and AF-2. A symbolic link stays and its target is replaced. A folder
//       is refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "runtime/files/checksum.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro {

/// Callback after each filesystem operation, with its name; tests stop the process there. May be empty.
using OperationHook = std::function<void(std::string_view operation)>;

/// The destination of bytes that are written to a path (AF-3).
struct WriteTarget {
  std::filesystem::path path;  ///< path after all symbolic links; need not exist
  bool through = false;        ///< written directly: not a regular file
  int descriptor = -1;         ///< open descriptor of this process that the path names, such as /dev/stdout
};
/// Follows symbolic links to the destination. Errors: a folder, or a loop of links.
[[nodiscard]] Result<WriteTarget> find_write_target(const std::filesystem::path& given);
/// Returns whether the path is written directly; false if find_write_target fails.
[[nodiscard]] bool is_written_through(const std::filesystem::path& path);

struct WrittenFile {
  std::uint64_t bytes = 0;
  std::string checksum;  ///< XXH3-128 of the content
};

/// Writes to a hidden temporary name in the target's folder; `commit` flushes it, renames it over the target and
/// flushes the folder. Every error names the path and the system's text. Not thread-safe; several processes may write
/// the same target, and the last commit wins. See AF-3 for targets other than regular files.
class AtomicFile {
 public:
  /// Opens a temporary file. Never waits: a pipe without a reading process is an error.
  [[nodiscard]] static Result<AtomicFile> create(const std::filesystem::path& target, OperationHook hook = {});
  ~AtomicFile() { discard(); }
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) = delete;

  [[nodiscard]] Status write(std::span<const std::byte> bytes);
  [[nodiscard]] Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  /// Removes permissions that `source` lacks, so that a copy is not more readable than its source.
  [[nodiscard]] Status keep_permissions(const std::filesystem::path& source);
  /// Commits the file; called once, as the last call. After a failure, the target is unchanged and the temporary file
  /// is removed; but if flushing the folder fails, the new content is already in place.
  [[nodiscard]] Result<WrittenFile> commit();

 private:
  AtomicFile(std::filesystem::path target, std::filesystem::path temporary, FileDescriptor file, OperationHook hook);
  [[nodiscard]] static Result<AtomicFile> open_through(const WriteTarget& target, OperationHook hook);
  void discard();
  void done(std::string_view operation) const {
    if (hook_) hook_(operation);
  }

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty after its rename or removal, and for a target that is written directly
  FileDescriptor file_;
  Checksum checksum_;
  std::uint64_t bytes_ = 0;
  OperationHook hook_;
};

/// Writes a small file at once.
[[nodiscard]] Result<WrittenFile> write_file(const std::filesystem::path& target, std::string_view text,
                                             OperationHook hook = {});

}  // namespace maestro
