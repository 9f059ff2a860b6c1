// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/record_tail.hpp"

#include <cstddef>

#include "runtime/core/input_file.hpp"

namespace maestro {

namespace {
constexpr std::size_t chunk = std::size_t{1} << 20;
}  // namespace

Status RecordTail::read(const std::function<Status(std::string_view line)>& each, const std::function<void()>& again) {
  const Result<FileDescriptor> file = open_for_reading(file_);
  if (!file) return file.error();
  const Result<std::string> last = read_at(*file, file_, end_ - last_.size(), last_.size());
  if (!last) return last.error();
  if (*last != last_) {
    end_ = 0;
    last_.clear();
    again();
  }
  std::string open;  // a line whose end has not been read
  for (std::uint64_t position = end_;;) {
    const Result<std::string> text = read_at(*file, file_, position, chunk);
    if (!text) return text.error();
    position += text->size();
    std::size_t begin = 0;
    for (std::size_t stop = text->find('\n'); stop != std::string::npos; stop = text->find('\n', begin)) {
      open.append(*text, begin, stop + 1 - begin);
      begin = stop + 1;
      end_ += open.size();
      last_ = std::move(open);
      open.clear();
      if (Status done = each(std::string_view(last_).substr(0, last_.size() - 1)); !done) return done;
    }
    if (text->size() < chunk) return {};
    open.append(*text, begin);
  }
}

}  // namespace maestro
