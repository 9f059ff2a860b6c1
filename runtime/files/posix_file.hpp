// SPDX-License-Identifier: Apache-2.0
// Flushes folders and maps files; core contains the readers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

#include "runtime/core/input_file.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// Makes the entries of a folder (new files, renames, removals) survive a power cut.
[[nodiscard]] Status sync_folder(const std::filesystem::path& path);

/// A file that is mapped read-only and privately. Move-only; a move keeps the address. Reading a file that was
/// truncated while mapped is a fault: files of a run are replaced, never changed in place.
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
  /// Returns the content; empty for an empty file.
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Frees the memory of the pages in `part`, a part of bytes(); they are read again on access.
  void release(std::span<const std::byte> part) const;

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  void reset();

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace maestro
