// SPDX-License-Identifier: Apache-2.0
#include "runtime/record/run_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t chunk = std::size_t{1} << 18;  // bytes

/// Returns the last `most` complete lines in `text` with steps up to `last`, the newest first. The first line is left
/// out as incomplete unless `begins` states that the text is the beginning of the file.
std::vector<std::string> last_lines(std::string_view text, bool begins, std::size_t most, std::uint64_t last) {
  std::vector<std::string> lines;
  std::size_t end = text.rfind('\n');
  while (end != std::string_view::npos && lines.size() < most) {
    const std::size_t before = end == 0 ? std::string_view::npos : text.rfind('\n', end - 1);
    if (before == std::string_view::npos && !begins) break;
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const std::string_view line = text.substr(begin, end - begin);
    if (step_of_line(line) <= last) lines.emplace_back(line);
    end = before;
  }
  return lines;
}

}  // namespace

Status for_whole_lines(const fs::path& path, const std::function<bool(std::string_view, std::uint64_t)>& each) {
  const Result<FileDescriptor> file = open_for_reading(path);
  return file ? for_whole_lines(*file, path, 0, each) : file.error();
}

Status for_whole_lines(const FileDescriptor& file, const fs::path& path, std::uint64_t position,
                       const std::function<bool(std::string_view, std::uint64_t)>& each) {
  std::string text;  // bytes after the last complete line
  while (true) {
    const Result<std::string> more = read_at(file, path, position + text.size(), chunk);
    if (!more) return more.error();
    if (more->empty()) return {};
    text += *more;
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
      if (!each(std::string_view(text).substr(begin, end - begin), position + end + 1)) return {};
      begin = end + 1;
    }
    text.erase(0, begin);
    position += begin;
  }
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
  const Result<FileDescriptor> file = open_for_reading(path);
  if (!file) return file.error();
  for (std::uint64_t part = chunk;; part *= 4) {
    const off_t size = lseek(file->get(), 0, SEEK_END);
    if (size < 0) return system_error("cannot read", path, errno);
    const std::uint64_t count = std::min(part, static_cast<std::uint64_t>(size));
    const std::uint64_t begin = static_cast<std::uint64_t>(size) - count;
    const Result<std::string> text = read_at(*file, path, begin, count);
    if (!text) return text.error();
    std::vector<std::string> lines = last_lines(*text, begin == 0, most, last);
    if (begin > 0 && lines.size() < most) continue;
    std::ranges::reverse(lines);
    return lines;
  }
}

Result<RunLog> RunLog::open(const fs::path& folder, std::uint64_t last_step) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) return system_error("cannot create folder", folder, failure.value());
  const fs::path rollouts = folder / rollouts_file;
  if (fs::exists(rollouts, failure)) {
    std::uint64_t last = last_step;
    if (const Result<File> cut_off = open_lines(rollouts, last); !cut_off) return cut_off.error();
  }
  Result<File> steps = open_lines(folder / steps_file, last_step);
  if (!steps) return steps.error();
  Result<File> events = open_file(folder / events_file);
  if (!events) return events.error();
  std::uint64_t kept = 0;
  const Status read = for_whole_lines(events->path, [&](std::string_view, std::uint64_t end) {
    kept = end;
    return true;
  });
  if (!read) return read.error();
  if (const Status done = cut(*events, kept); !done) return done.error();
  return RunLog(std::move(*steps), std::move(*events), rollouts, last_step);
}

Result<RunLog::File> RunLog::open_lines(const fs::path& path, std::uint64_t& last_step) {
  Result<File> file = open_file(path);
  if (!file) return file.error();
  std::uint64_t kept = 0, last = 0;
  const Status read = for_whole_lines(file->path, [&](std::string_view line, std::uint64_t end) {
    const std::uint64_t step = step_of_line(line);
    if (step <= last || step > last_step) return false;
    last = step;
    kept = end;
    return true;
  });
  if (!read) return read.error();
  if (const Status done = cut(*file, kept); !done) return done.error();
  last_step = last;
  return file;
}

Status RunLog::append_rollouts(std::string_view line) {
  if (!rollouts_.descriptor) {
    std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
    Result<File> opened = open_lines(rollouts_.path, all);
    if (!opened) return opened.error();
    rollouts_ = *std::move(opened);
  }
  return append(rollouts_, line);
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
