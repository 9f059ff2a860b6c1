// SPDX-License-Identifier: Apache-2.0
#include "runtime/record/record_tail.hpp"

#include "runtime/core/input_file.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {

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
  Status result;
  const Status read = for_whole_lines(*file, file_, end_, [&](std::string_view line, std::uint64_t end) {
    last_ = line;
    last_ += '\n';
    end_ = end;
    result = each(line);
    return result.ok();
  });
  return read ? result : read;
}

}  // namespace maestro
