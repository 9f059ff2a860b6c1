// SPDX-License-Identifier: Apache-2.0
// Files that appear whole or not at all.
//
// AF-1 (whole or old): under its final name a file holds either the old content or all of the new content, whenever the
//       machine stops.
// AF-2 (no leftovers): an AtomicFile that is destroyed without commit leaves nothing behind.
// AF-3 (regular files only): only regular files are replaced. A device, a pipe, a terminal or /dev/stdout is written
//       through and keeps its kind; AF-1 and AF-2 do not hold there. A symbolic link stays and its target is replaced.
//       A folder is refused.
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

/// Called after each operation on the filesystem, with its name; tests stop the process there. May be empty.
using OperationHook = std::function<void(std::string_view operation)>;

/// Where bytes written to a path end (AF-3).
struct WriteTarget {
  std::filesystem::path path;  ///< all symbolic links followed; need not exist
  bool through = false;        ///< no regular file
  int descriptor = -1;         ///< the path is an open descriptor of this process, such as /dev/stdout
};
/// The error names a folder, or a loop of links.
[[nodiscard]] Result<WriteTarget> find_write_target(const std::filesystem::path& given);
/// Whether the path is something to write through; false when find_write_target fails.
[[nodiscard]] bool is_written_through(const std::filesystem::path& path);

struct WrittenFile {
  std::uint64_t bytes = 0;
  std::string checksum;  ///< XXH3-128 of the content
};

/// Writes to a hidden temporary name in the target's folder; `commit` flushes it, renames it over the target and
/// flushes the folder. Every error names the path and the system's own text. Not thread-safe; several processes may
/// write the same target, the last commit wins. See AF-3 for targets that are no regular files.
class AtomicFile {
 public:
  /// Never waits: a pipe that no process reads from is an error.
  [[nodiscard]] static Result<AtomicFile> create(const std::filesystem::path& target, OperationHook hook = {});
  ~AtomicFile() { discard(); }
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) = delete;

  [[nodiscard]] Status write(std::span<const std::byte> bytes);
  [[nodiscard]] Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  /// Takes from the file the permissions that `source` lacks, so that a copy is no more readable than its source.
  [[nodiscard]] Status keep_permissions(const std::filesystem::path& source);
  /// Once, as the last call. On failure the target is untouched and the temporary file is gone; only when flushing the
  /// folder fails the new content is already in place.
  [[nodiscard]] Result<WrittenFile> commit();

 private:
  AtomicFile(std::filesystem::path target, std::filesystem::path temporary, FileDescriptor file, OperationHook hook);
  [[nodiscard]] static Result<AtomicFile> open_through(const WriteTarget& target, OperationHook hook);
  void discard();
  void done(std::string_view operation) const {
    if (hook_) hook_(operation);
  }

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty once renamed or removed, and when the target is written through
  FileDescriptor file_;
  Checksum checksum_;
  std::uint64_t bytes_ = 0;
  OperationHook hook_;
};

/// The whole of a small file at once.
[[nodiscard]] Result<WrittenFile> write_file(const std::filesystem::path& target, std::string_view text,
                                             OperationHook hook = {});

}  // namespace maestro
