#include "runtime/observe/output_file.hpp"

#include <utility>

namespace maestro {

namespace {
constexpr std::size_t buffer_bytes = std::size_t{1} << 18;
}

Result<OutputFile> OutputFile::create(const std::filesystem::path& path) {
  std::error_code problem;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), problem);
  if (problem) {
    return Error{ErrorCode::unavailable,
                 "cannot create the folder of " + path.string() + ": " + problem.message()};
  }
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.error();
  return OutputFile(std::move(*file));
}

Status OutputFile::append(std::string_view bytes) {
  buffer_.append(bytes);
  return buffer_.size() < buffer_bytes ? Status() : flush();
}

Status OutputFile::flush() {
  const Status written = file_.write(buffer_);
  buffer_.clear();
  return written;
}

Status OutputFile::commit() {
  if (Status flushed = flush(); !flushed) return flushed;
  const Result<WrittenFile> committed = file_.commit();
  return committed ? Status() : Status(committed.error());
}

Status write_output(const std::filesystem::path& path, std::string_view bytes) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  if (Status appended = file->append(bytes); !appended) return appended;
  return file->commit();
}

}  // namespace maestro
