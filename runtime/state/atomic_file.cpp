#include "runtime/state/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace maestro {

namespace fs = std::filesystem;

Result<AtomicFile> AtomicFile::create(const fs::path& target, OperationHook hook) {
  // A crash may have left a temporary file of a process with the same number; the next free name is as good.
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
  constexpr std::size_t most_at_once = std::size_t{1} << 30;  // Linux writes at most 2 GiB in one call
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

Result<WrittenFile> AtomicFile::commit() {
  const std::string name = target_.filename().string();
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
