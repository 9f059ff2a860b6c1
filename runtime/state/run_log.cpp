// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/run_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "runtime/state/posix_file.hpp"

namespace maestro {

namespace fs = std::filesystem;

Status for_whole_lines(const fs::path& path, const std::function<bool(std::string_view, std::uint64_t)>& each) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  for (std::size_t begin = 0, end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', begin)) {
    if (!each(text.substr(begin, end - begin), end + 1)) break;
    begin = end + 1;
  }
  return {};
}

std::uint64_t step_of_line(std::string_view line) {
  constexpr std::string_view before = R"({"step":)";
  std::uint64_t step = 0;
  if (!line.starts_with(before) || !line.ends_with('}')) return 0;
  const auto [end, failure] = std::from_chars(line.data() + before.size(), line.data() + line.size(), step);
  return failure == std::errc() && *end == ',' ? step : 0;
}

Result<std::vector<std::string>> read_record(const fs::path& file) {
  std::vector<std::string> lines;
  const Status read = for_whole_lines(file, [&](std::string_view line, std::uint64_t) {
    lines.emplace_back(line);
    return true;
  });
  if (!read) return read.error();
  return lines;
}

Result<std::vector<std::string>> read_record_end(const fs::path& path, std::size_t most, std::uint64_t last) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  std::vector<std::string> lines;
  std::size_t end = text.rfind('\n');
  while (end != std::string_view::npos && lines.size() < most) {
    const std::size_t before = end == 0 ? std::string_view::npos : text.rfind('\n', end - 1);
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const std::string_view line = text.substr(begin, end - begin);
    if (step_of_line(line) <= last) lines.emplace_back(line);
    end = before;
  }
  std::ranges::reverse(lines);
  return lines;
}

Result<RunLog> RunLog::open(const fs::path& folder, std::uint64_t last_step) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) return system_error("cannot create folder", folder, failure.value());
  Result<File> steps = open_file(folder / steps_file);
  if (!steps) return steps.error();
  Result<File> events = open_file(folder / events_file);
  if (!events) return events.error();

  std::uint64_t kept = 0, last = 0;
  Status read = for_whole_lines(steps->path, [&](std::string_view line, std::uint64_t end) {
    const std::uint64_t step = step_of_line(line);
    if (step <= last || step > last_step) return false;
    last = step;
    kept = end;
    return true;
  });
  if (!read) return read.error();
  if (const Status done = cut(*steps, kept); !done) return done.error();
  kept = 0;
  read = for_whole_lines(events->path, [&](std::string_view, std::uint64_t end) {
    kept = end;
    return true;
  });
  if (!read) return read.error();
  if (const Status done = cut(*events, kept); !done) return done.error();
  return RunLog(std::move(*steps), std::move(*events), last);
}

Result<RunLog::File> RunLog::open_file(const fs::path& path) {
  if (const Status kind = check_readable_kind(path); !kind) return kind.error();
  File file{path, FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666))};
  if (!file.descriptor) return system_error("cannot write", path, errno);
  return file;
}

Status RunLog::cut(File& file, std::uint64_t size) {
  if (ftruncate(file.descriptor.get(), static_cast<off_t>(size)) != 0)
    return system_error("cannot cut", file.path, errno);
  file.size = size;
  return {};
}

Status RunLog::append(File& file, std::string_view line) {
  std::string text(line);
  text += '\n';
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = write(file.descriptor.get(), text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const Error failure = system_error("cannot write", file.path, count < 0 ? errno : ENOSPC);
      (void)cut(file, file.size);
      return failure;
    }
    written += static_cast<std::size_t>(count);
  }
  file.size += text.size();
  return {};
}

}  // namespace maestro
