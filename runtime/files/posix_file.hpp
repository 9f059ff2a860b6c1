// SPDX-License-Identifier: Apache-2.0
// Flushing of folders and mapping of files, beside the readers in core.
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
  /// Frees the memory of the pages of `part` of bytes(); they are read again when touched.
  void release(std::span<const std::byte> part) const;

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  void reset();

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace maestro
