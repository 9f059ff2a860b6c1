#include "runtime/state/posix_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>

namespace maestro {

namespace fs = std::filesystem;

Error system_error(std::string_view operation, const fs::path& path, int errno_value) {
  ErrorCode code = ErrorCode::unavailable;
  if (errno_value == ENOENT) code = ErrorCode::not_found;
  if (errno_value == ENOTDIR || errno_value == EISDIR || errno_value == ENAMETOOLONG)
    code = ErrorCode::invalid_argument;
  return {code, std::string(operation) + " " + path.string() + ": " + std::generic_category().message(errno_value)};
}

void FileDescriptor::reset() {
  // Data that must last has been fsynced before; what close could still report concerns nobody.
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

Result<FileDescriptor> open_for_reading(const fs::path& path) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return system_error("cannot open", path, errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return system_error("cannot open", path, errno);
  if (S_ISDIR(status.st_mode)) return system_error("cannot read", path, EISDIR);
  return file;
}

Status sync_folder(const fs::path& path) {
  const FileDescriptor folder(open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return system_error("cannot open folder", path, errno);
  // Some network filesystems have no fsync of folders and say so with EINVAL; their renames are durable by themselves.
  if (fsync(folder.get()) != 0 && errno != EINVAL) return system_error("cannot flush folder", path, errno);
  return {};
}

Result<std::string> read_text(const fs::path& path) {
  Result<FileDescriptor> file = open_for_reading(path);
  if (!file) return file.error();
  std::string text;
  std::array<char, 65536> piece{};
  for (;;) {
    const ssize_t got = read(file->get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read", path, errno);
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

Result<MappedFile> MappedFile::open(const fs::path& path) {
  Result<FileDescriptor> file = open_for_reading(path);
  if (!file) return file.error();
  struct stat status {};
  if (fstat(file->get(), &status) != 0) return system_error("cannot open", path, errno);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return MappedFile();
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file->get(), 0);
  if (data == MAP_FAILED) return system_error("cannot map", path, errno);
  return MappedFile(static_cast<const std::byte*>(data), size);
}

void MappedFile::reset() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace maestro
