// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <utility>

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// Returns the number of this process's open descriptor that a link in /proc denotes, or -1. Opening such a link again
/// would overwrite earlier output of the process from the beginning of the file.
int own_descriptor(const fs::path& link) {
  std::error_code failure;
  const fs::path folder = fs::canonical(link.parent_path(), failure);
  if (failure || folder != "/proc/" + std::to_string(getpid()) + "/fd") return -1;
  const std::string name = link.filename().string();
  int number = -1;
  const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), number);
  return wrong == std::errc() && end == name.data() + name.size() ? number : -1;
}

}  // namespace

Result<WriteTarget> find_write_target(const fs::path& given) {
  constexpr int most_links = 40;  // as in Linux
  fs::path path = given;
  for (int links = 0; links < most_links; ++links) {
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) return WriteTarget{path};  // opening it reports the reason
    if (S_ISDIR(status.st_mode)) return system_error("cannot write", given, EISDIR);
    if (!S_ISLNK(status.st_mode)) return WriteTarget{path, !S_ISREG(status.st_mode)};
    if (const int descriptor = own_descriptor(path); descriptor >= 0) return WriteTarget{given, true, descriptor};
    std::error_code failure;
    const fs::path next = fs::read_symlink(path, failure);
    if (failure) return system_error("cannot write", given, failure.value());
    path = path.parent_path() / next;  // an absolute path replaces everything
  }
  return system_error("cannot write", given, ELOOP);
}

bool is_written_through(const fs::path& path) {
  const Result<WriteTarget> target = find_write_target(path);
  return target && target->through;
}

Result<AtomicFile> AtomicFile::open_through(const WriteTarget& target, OperationHook hook) {
  const int opened = target.descriptor >= 0 ? fcntl(target.descriptor, F_DUPFD_CLOEXEC, 0)
                                            : open(target.path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  FileDescriptor file(opened);
  if (!file && errno == ENXIO) {
    return Error{ErrorCode::unavailable, "cannot write " + target.path.string() + ": no process reads from it"};
  }
  if (!file) return system_error("cannot write", target.path, errno);
  const int flags = fcntl(file.get(), F_GETFL);
  if ((flags & O_ACCMODE) == O_RDONLY) return system_error("cannot write", target.path, EBADF);
  // Only opening must not wait. A duplicate shares its flags with the process's descriptor, which must not change.
  if (target.descriptor < 0) (void)fcntl(file.get(), F_SETFL, flags & ~O_NONBLOCK);
  return AtomicFile(target.path, {}, std::move(file), std::move(hook));
}

Result<AtomicFile> AtomicFile::create(const fs::path& given, OperationHook hook) {
  const Result<WriteTarget> found = find_write_target(given);
  if (!found) return found.error();
  if (found->through) return open_through(*found, std::move(hook));
  const fs::path& target = found->path;
  // A crashed process with the same number may have left a temporary file; then the next free name is used.
  constexpr int most_attempts = 1000;
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    fs::path temporary = target.parent_path() / ("." + target.filename().string() + "." + std::to_string(getpid()) +
                                                 "-" + std::to_string(attempt) + ".tmp");
    FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file && errno == EEXIST) continue;
    if (!file) return system_error("cannot write", target, errno);
    AtomicFile created(target, std::move(temporary), std::move(file), std::move(hook));
    created.done("create " + target.filename().string());
    return created;
  }
  return system_error("cannot find a temporary name for", target, EEXIST);
}

AtomicFile::AtomicFile(fs::path target, fs::path temporary, FileDescriptor file, OperationHook hook)
    : target_(std::move(target)), temporary_(std::move(temporary)), file_(std::move(file)), hook_(std::move(hook)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)),
      checksum_(std::move(other.checksum_)),
      bytes_(other.bytes_),
      hook_(std::move(other.hook_)) {}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t most_at_once = std::size_t{1} << 30;  // Linux writes at most 2 GiB per call
  while (!bytes.empty()) {
    const ssize_t put = ::write(file_.get(), bytes.data(), std::min(bytes.size(), most_at_once));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error("cannot write", target_, errno);
    const auto written = bytes.first(static_cast<std::size_t>(put));
    checksum_.add(written);
    bytes_ += written.size();
    bytes = bytes.subspan(written.size());
  }
  return {};
}

Status AtomicFile::keep_permissions(const fs::path& source) {
  if (temporary_.empty()) return {};  // written directly (AF-3)
  struct stat of_source {
  }, own{};
  if (stat(source.c_str(), &of_source) != 0) return system_error("cannot read", source, errno);
  if (fstat(file_.get(), &own) != 0) return system_error("cannot write", target_, errno);
  constexpr mode_t permissions = 0777;
  if (fchmod(file_.get(), own.st_mode & of_source.st_mode & permissions) == 0) return {};
  return system_error("cannot write", target_, errno);
}

Result<WrittenFile> AtomicFile::commit() {
  const std::string name = target_.filename().string();
  if (temporary_.empty()) {  // written directly (AF-3)
    file_.reset();
    return WrittenFile{bytes_, checksum_.text()};
  }
  if (fsync(file_.get()) != 0) {
    const Error error = system_error("cannot write", target_, errno);
    discard();
    return error;
  }
  file_.reset();
  done("flush " + name);
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    const Error error = system_error("cannot write", target_, errno);
    discard();
    return error;
  }
  temporary_.clear();
  done("rename " + name);
  if (const Status flushed = sync_folder(target_.parent_path()); !flushed) return flushed.error();
  return WrittenFile{bytes_, checksum_.text()};
}

void AtomicFile::discard() {
  file_.reset();
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
}

Result<WrittenFile> write_file(const fs::path& target, std::string_view text, OperationHook hook) {
  Result<AtomicFile> file = AtomicFile::create(target, std::move(hook));
  if (!file) return file.error();
  if (const Status written = file->write(text); !written) return written.error();
  return file->commit();
}

}  // namespace maestro
