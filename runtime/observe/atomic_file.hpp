// A file that is there whole or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

/// Writes beside the destination and renames on `commit`; destroyed before that it leaves nothing behind, and an older
/// file stays as it was. One thread at a time. Errors name the path and the system's reason.
class AtomicFile {
 public:
  /// Creates the folder of `path` when missing.
  static Result<AtomicFile> create(std::filesystem::path path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status append(std::string_view bytes);
  /// Flushes to the disk and puts the file in place. Nothing may be appended afterwards.
  Status commit();

 private:
  AtomicFile(std::filesystem::path path, std::filesystem::path partial, int descriptor);
  Status flush();

  std::filesystem::path path_;
  std::filesystem::path partial_;  // empty once committed or moved from
  int descriptor_ = -1;
  std::string buffer_;
};

Status write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

}  // namespace maestro
