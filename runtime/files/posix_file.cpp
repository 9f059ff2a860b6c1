// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/posix_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace maestro {

namespace fs = std::filesystem;

Status sync_folder(const fs::path& path) {
  const FileDescriptor folder(open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return system_error("cannot open folder", path, errno);
  // Some network filesystems lack fsync for folders and return EINVAL; their renames are durable without it.
  if (fsync(folder.get()) != 0 && errno != EINVAL) return system_error("cannot flush folder", path, errno);
  return {};
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

void MappedFile::release(std::span<const std::byte> part) const {
  constexpr std::size_t page = 4096;
  const auto first = static_cast<std::size_t>(part.data() - data_) / page * page;
  const auto end = static_cast<std::size_t>(part.data() - data_) + part.size();
  if (!part.empty()) (void)madvise(const_cast<std::byte*>(data_) + first, end - first, MADV_DONTNEED);  // a hint
}

void MappedFile::reset() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace maestro
