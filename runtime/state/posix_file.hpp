// Owned file descriptors and mappings, and errors that say which path failed and why.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/core/result.hpp"

namespace maestro {

/// "<operation> <path>: <text of errno>", with the code that fits the errno (not_found, invalid_argument for a path
/// that cannot be right, unavailable otherwise).
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
  /// Gives the descriptor away, unclosed.
  [[nodiscard]] int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

/// Opens a regular file for reading.
[[nodiscard]] Result<FileDescriptor> open_for_reading(const std::filesystem::path& path);
/// Makes the entries of a folder (new files, renames, removals) survive a power cut.
[[nodiscard]] Status sync_folder(const std::filesystem::path& path);
/// The whole of a small file.
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& path);

/// A whole file mapped read-only and privately; move-only, the address stays the same when moved. Truncating the file
/// while it is mapped makes reading it a fault: files of a run are replaced, never changed in place.
class MappedFile {
 public:
  MappedFile() = default;
  [[nodiscard]] static Result<MappedFile> open(const std::filesystem::path& path);
  ~MappedFile() { reset(); }
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    if (this != &other) {
      reset();
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  /// Empty for an empty file.
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  void reset();

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace maestro
