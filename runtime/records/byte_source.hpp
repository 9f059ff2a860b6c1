// SPDX-License-Identifier: Apache-2.0
// The bytes of a file, decompressed where it is compressed, and the members of a tar archive.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/core/result.hpp"

struct archive;

namespace maestro {

/// A file opened for reading by libarchive. One thread at a time.
class ByteSource {
 public:
  /// As a stream of bytes: a file that is no archive, compressed or not, is its only member.
  [[nodiscard]] static Result<ByteSource> open_raw(const std::filesystem::path& file);
  /// As a tar archive, compressed or not.
  [[nodiscard]] static Result<ByteSource> open_tar(const std::filesystem::path& file);

  /// Goes on to the next member that is a regular file and returns its name; nothing: there is none.
  [[nodiscard]] Result<std::optional<std::string>> next_member();
  /// Fills `bytes` from the current member. Returns how many there were: fewer than asked for only at its end.
  [[nodiscard]] Result<std::size_t> read(std::span<char> bytes);

 private:
  struct Close {
    void operator()(archive* opened) const;
  };
  ByteSource(std::filesystem::path file, std::unique_ptr<archive, Close> opened)
      : file_(std::move(file)), archive_(std::move(opened)) {}
  [[nodiscard]] static Result<ByteSource> open(const std::filesystem::path& file, bool raw);
  [[nodiscard]] Error failed() const;

  std::filesystem::path file_;
  std::unique_ptr<archive, Close> archive_;
  bool in_member_ = false;
};

}  // namespace maestro
