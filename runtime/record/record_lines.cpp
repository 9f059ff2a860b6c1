// SPDX-License-Identifier: Apache-2.0
#include "runtime/record/record_lines.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/core/input_file.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {
namespace {

constexpr std::size_t chunk_bytes = 4096;

/// The bytes of a file up to its initial size; the file may grow meanwhile.
class Bytes {
 public:
  Bytes(std::filesystem::path path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {
    struct stat there {};
    if (::fstat(file_.get(), &there) == 0) size_ = static_cast<std::uint64_t>(there.st_size);
  }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// Returns up to `count` bytes; fewer at the end of the file.
  [[nodiscard]] Result<std::string> read(std::uint64_t at, std::size_t count) const {
    return read_at(file_, path_, at, std::min<std::uint64_t>(count, size_ - std::min(at, size_)));
  }
  /// Returns the complete line that begins at `at`, with its end; empty if there is none.
  [[nodiscard]] Result<std::string> line(std::uint64_t at) const {
    std::string text;
    for (std::size_t searched = 0;; searched = text.size()) {
      const Result<std::string> more = read(at + text.size(), chunk_bytes);
      if (!more) return more.error();
      text += *more;
      const std::size_t end = text.find('\n', searched);
      if (end != std::string::npos) return text.substr(0, end + 1);
      if (more->empty()) return std::string();
    }
  }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

/// Returns the position of the first line with a step from `first` on, by bisection: the lines' steps rise (LN-2).
Result<std::uint64_t> position_of(const Bytes& file, std::uint64_t first) {
  std::uint64_t low = 0;  // a line begins here; all lines before it have earlier steps
  std::uint64_t high = file.size();
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    std::uint64_t begin = low;
    if (middle > low) {  // the next line after the line that contains `middle`
      const Result<std::string> rest = file.line(middle - 1);
      if (!rest) return rest.error();
      begin = rest->empty() ? high : middle - 1 + rest->size();
    }
    const Result<std::string> line = begin < high ? file.line(begin) : Result<std::string>(std::string());
    if (!line) return line.error();
    if (line->empty() || step_of_line(std::string_view(*line).substr(0, line->size() - 1)) >= first) {
      if (middle == low) return low;
      high = middle;
    } else {
      low = begin + line->size();
    }
  }
  return low;
}

}  // namespace

Result<std::string> lines_from_step(const std::filesystem::path& path, std::uint64_t first, PageLimits limits) {
  Result<FileDescriptor> opened = open_for_reading(path);
  if (!opened) return opened.error();
  const Bytes file(path, std::move(*opened));
  const Result<std::uint64_t> begin = position_of(file, first);
  if (!begin) return begin.error();
  Result<std::string> page = file.read(*begin, limits.bytes);
  if (!page) return page;
  std::size_t end = 0;
  for (std::size_t count = 0; count < limits.lines; ++count) {
    const std::size_t next = page->find('\n', end);
    if (next == std::string::npos) break;
    end = next + 1;
  }
  if (end == 0) return file.line(*begin);
  page->resize(end);
  return page;
}

}  // namespace maestro
