// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <new>
#include <string>
#include <system_error>

#include "runtime/core/printable.hpp"
#include "runtime/core/utf8.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t longest_mark = 4;    // longest byte order mark in bytes
constexpr std::size_t longest_path = 300;  // bytes shown in a message; paths of test folders are long

std::string shown(const fs::path& path) {
  return printable(path.string(), longest_path);
}

/// Returns the kind of a file that is not regular; empty for a regular file.
std::string_view odd_kind(mode_t mode) {
  if (S_ISREG(mode)) return {};
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Status check_kind(const fs::path& path, mode_t mode) {
  const std::string_view kind = odd_kind(mode);
  if (kind.empty()) return {};
  return Error{ErrorCode::invalid_argument,
               "cannot read " + shown(path) + ": it is " + std::string(kind) + ", not a regular file"};
}

Result<std::string> contents(const FileDescriptor& file, const fs::path& path, std::size_t largest) {
  std::string text;
  std::array<char, 65536> piece{};
  for (;;) {
    const ssize_t got = read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read", path, errno);
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (text.size() > largest) {
      return Error{ErrorCode::invalid_argument, "cannot read " + shown(path) + ": larger than " +
                                                    std::to_string(largest >> 20) + " MiB, the most for this file"};
    }
  }
}

}  // namespace

Error system_error(std::string_view operation, const fs::path& path, int errno_value) {
  ErrorCode code = ErrorCode::unavailable;
  if (errno_value == ENOENT) code = ErrorCode::not_found;
  if (errno_value == ENOTDIR || errno_value == EISDIR || errno_value == ENAMETOOLONG)
    code = ErrorCode::invalid_argument;
  return {code, std::string(operation) + " " + shown(path) + ": " + std::generic_category().message(errno_value)};
}

void FileDescriptor::reset() {
  // Durable data has been fsynced before, so an error of close() is ignored.
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

Result<std::string> read_at(const FileDescriptor& file, const fs::path& path, std::uint64_t position,
                            std::size_t count) {
  std::string bytes(count, '\0');
  std::size_t got = 0;
  while (got < count) {
    const ssize_t more = pread(file.get(), bytes.data() + got, count - got, static_cast<off_t>(position + got));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return system_error("cannot read", path, errno);
    if (more == 0) break;
    got += static_cast<std::size_t>(more);
  }
  bytes.resize(got);
  return bytes;
}

Status check_readable_kind(const fs::path& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? check_kind(path, status.st_mode) : Status();
}

Result<FileDescriptor> open_for_reading(const fs::path& path) {
  // Checked before as well: opening a device may act on it, and opening a socket fails with another reason.
  if (const Status kind = check_readable_kind(path); !kind) return kind.error();
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return system_error("cannot open", path, errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return system_error("cannot open", path, errno);
  if (const Status kind = check_kind(path, status.st_mode); !kind) return kind.error();
  return file;
}

Result<std::string> read_text(const fs::path& path, std::size_t largest) {
  try {
    const Result<FileDescriptor> file = open_for_reading(path);
    if (!file) return file.error();
    Result<std::string> text = contents(*file, path, largest);
    if (!text) return text;
    text->erase(0, text->size() - without_mark(*text).size());
    const std::string wide(wide_encoding(std::string_view(*text).substr(0, longest_mark)));
    if (wide.empty()) return text;
    return Error{ErrorCode::invalid_argument, "cannot read " + shown(path) + ": it is " + wide +
                                                  "; convert it to UTF-8 (iconv -f " + wide + " -t UTF-8)"};
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::unavailable, "cannot read " + shown(path) + ": not enough memory"};
  }
}

}  // namespace maestro
