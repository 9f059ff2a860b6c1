// SPDX-License-Identifier: Apache-2.0
// A text output of a run (report, trace): buffered, its folder created if missing, published completely or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "runtime/files/atomic_file.hpp"

namespace maestro {

/// If destroyed before commit(), it leaves no file, and an older file is unchanged. One thread at a time. Errors name
/// the path and the system's reason.
class OutputFile {
 public:
  /// Creates the folder of `path` if missing.
  static Result<OutputFile> create(const std::filesystem::path& path);
  Status append(std::string_view bytes);
  /// Flushes to the disk and moves the file to its path. Nothing may be appended afterwards.
  Status commit();

 private:
  OutputFile(std::filesystem::path path, AtomicFile file) : path_(std::move(path)), file_(std::move(file)) {}
  Status flush();

  std::filesystem::path path_;
  AtomicFile file_;
  std::string buffer_;
};

Status write_output(const std::filesystem::path& path, std::string_view bytes);

}  // namespace maestro
