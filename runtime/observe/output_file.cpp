// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/output_file.hpp"

#include <utility>

namespace maestro {

namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 18;

Error cannot_write(const std::filesystem::path& path, const Error& reason) {
  return {reason.code, "cannot write " + path.string() + ": " + reason.message};
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::filesystem::path& path) {
  std::error_code problem;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), problem);
  if (problem) {
    return cannot_write(path, {ErrorCode::unavailable, problem.message()});
  }
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return cannot_write(path, file.error());
  return OutputFile(path, std::move(*file));
}

Status OutputFile::append(std::string_view bytes) {
  buffer_.append(bytes);
  return buffer_.size() < buffer_bytes ? Status() : flush();
}

Status OutputFile::flush() {
  const Status written = file_.write(buffer_);
  buffer_.clear();
  return written ? Status() : Status(cannot_write(path_, written.error()));
}

Status OutputFile::commit() {
  if (Status flushed = flush(); !flushed) return flushed;
  const Result<WrittenFile> committed = file_.commit();
  return committed ? Status() : Status(cannot_write(path_, committed.error()));
}

Status write_output(const std::filesystem::path& path, std::string_view bytes) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  if (Status appended = file->append(bytes); !appended) return appended;
  return file->commit();
}

}  // namespace maestro
