#include "runtime/observe/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace maestro {
namespace {

constexpr std::size_t buffer_bytes = 64 * 1024;

Error write_error(const std::filesystem::path& path, const std::error_code& reason) {
  return {ErrorCode::unavailable, "cannot write " + path.string() + ": " + reason.message()};
}

std::error_code last_error() {
  return {errno, std::generic_category()};
}

}  // namespace

Result<AtomicFile> AtomicFile::create(std::filesystem::path path) {
  std::error_code failed;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failed);
  if (failed) return write_error(path, failed);
  auto partial = path;
  // The process id keeps two runs that write one path from sharing their unfinished files.
  partial += ".partial." + std::to_string(::getpid());
  const int descriptor = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return write_error(path, last_error());
  return AtomicFile(std::move(path), std::move(partial), descriptor);
}

AtomicFile::AtomicFile(std::filesystem::path path, std::filesystem::path partial, int descriptor)
    : path_(std::move(path)), partial_(std::move(partial)), descriptor_(descriptor) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::exchange(other.partial_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      buffer_(std::move(other.buffer_)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

Status AtomicFile::append(std::string_view bytes) {
  buffer_ += bytes;
  return buffer_.size() < buffer_bytes ? Status() : flush();
}

Status AtomicFile::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const auto written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return write_error(path_, last_error());
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  buffer_.clear();
  return {};
}

Status AtomicFile::commit() {
  if (auto flushed = flush(); !flushed.ok()) return flushed;
  if (::fsync(descriptor_) != 0) return write_error(path_, last_error());
  if (::close(std::exchange(descriptor_, -1)) != 0) return write_error(path_, last_error());
  std::error_code failed;
  std::filesystem::rename(partial_, path_, failed);
  if (failed) return write_error(path_, failed);
  partial_.clear();
  return {};
}

Status write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  auto file = AtomicFile::create(path);
  if (!file.ok()) return file.error();
  if (auto appended = file->append(bytes); !appended.ok()) return appended;
  return file->commit();
}

}  // namespace maestro
