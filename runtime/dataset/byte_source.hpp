// SPDX-License-Identifier: Apache-2.0
// Reads a file's bytes, decompressed if the file is compressed, and the members of a tar archive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <memory>
#include <optional>
#include <span>
#include <streambuf>
#include <string>
#include <vector>

#include "runtime/core/input_file.hpp"
#include "runtime/core/result.hpp"

struct archive;

namespace maestro {

/// A file that libarchive reads. One thread at a time.
class ByteSource {
 public:
  /// Opens a file as a stream of bytes: a file that is not an archive, compressed or not, is its only member.
  [[nodiscard]] static Result<ByteSource> open_raw(const std::filesystem::path& file);
  /// Opens a tar archive, compressed or not. In an uncompressed archive, reading starts at the member at byte
  /// `position`.
  [[nodiscard]] static Result<ByteSource> open_tar(const std::filesystem::path& file, std::int64_t position = 0);

  /// Moves to the next member that is a regular file and returns its name; nothing at the end.
  [[nodiscard]] Result<std::optional<std::string>> next_member();
  /// Fills `bytes` from the current member. Returns the number of bytes read: fewer than requested only at its end.
  [[nodiscard]] Result<std::size_t> read(std::span<char> bytes);
  /// Returns the current member's remaining content.
  [[nodiscard]] Result<std::string> read_all();
  /// Returns the size of a tar's current member.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Returns the position of the current member in the file; nothing if the file is compressed.
  [[nodiscard]] std::optional<std::int64_t> position() const;

 private:
  struct Close {
    void operator()(archive* opened) const;
  };
  ByteSource(std::filesystem::path file, std::unique_ptr<archive, Close> opened)
      : file_(std::move(file)), archive_(std::move(opened)) {}
  [[nodiscard]] static Result<ByteSource> open(const std::filesystem::path& file, bool raw, std::int64_t from);
  [[nodiscard]] Error failed() const;

  std::filesystem::path file_;
  FileDescriptor descriptor_;
  std::unique_ptr<archive, Close> archive_;  // reads the descriptor
  std::int64_t from_ = 0;
  std::uint64_t bytes_ = 0;
  bool in_member_ = false;
};

/// A file's text as a stream: decompressed, without a byte order mark. One thread at a time.
class TextStreamBuffer final : public std::streambuf {
 public:
  explicit TextStreamBuffer(ByteSource source);
  [[nodiscard]] static Result<std::unique_ptr<TextStreamBuffer>> open(const std::filesystem::path& file);
  /// Returns the error that ended the stream, if any.
  [[nodiscard]] const Status& error() const { return error_; }
  /// Returns the size of the byte order mark.
  [[nodiscard]] std::size_t mark() const { return mark_; }

 private:
  int_type underflow() override;

  ByteSource source_;
  std::vector<char> buffer_;
  Status error_;
  bool begun_ = false;
  std::size_t mark_ = 0;
};

}  // namespace maestro
