// SPDX-License-Identifier: Apache-2.0
// Reading of user files: owned descriptors, and errors that name the path and the reason.
//
// IF-1 (regular files): only regular files are read. Another kind (a FIFO, a device, a socket, a folder) is refused
//       with the name of its kind, and opening it never waits.
// IF-2 (bounded): a file that is held in memory completely is bounded in size; a failed allocation is an Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/core/result.hpp"

namespace maestro {

/// Returns "<operation> <path>: <text of errno>", with the code that fits the errno (not_found, invalid_argument for an
/// impossible path, unavailable otherwise).
[[nodiscard]] Error system_error(std::string_view operation, const std::filesystem::path& path, int errno_value);

/// Move-only owner of a descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
  }
  explicit operator bool() const { return descriptor_ >= 0; }
  [[nodiscard]] int get() const { return descriptor_; }
  void reset();
  /// Releases ownership of the descriptor without closing it.
  [[nodiscard]] int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

/// Opens a regular file for reading (IF-1).
[[nodiscard]] Result<FileDescriptor> open_for_reading(const std::filesystem::path& path);
/// Returns up to `count` bytes of an open file from `position` on; fewer at its end. Errors name `path`.
[[nodiscard]] Result<std::string> read_at(const FileDescriptor& file, const std::filesystem::path& path,
                                          std::uint64_t position, std::size_t count);
/// Returns OK for a regular file and for a missing file; otherwise an Error such as "cannot read <path>: it is a FIFO,
/// not a regular file".
[[nodiscard]] Status check_readable_kind(const std::filesystem::path& path);

inline constexpr std::size_t largest_text = std::size_t{64} << 20;  // bytes: far above any configuration or manifest

/// Reads a complete small file (IF-2), without a byte order mark at its start. A file with the mark of UTF-16 or UTF-32
/// is refused by the name of its encoding.
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& path, std::size_t largest = largest_text);

}  // namespace maestro
