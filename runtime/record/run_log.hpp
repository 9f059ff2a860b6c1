// SPDX-License-Identifier: Apache-2.0
// The record of a run, <train.out>/record: files of lines, a JSON object each, appended while the run goes on.
//
//   steps.jsonl   a line per finished training step, in their order; its first member is "step"
//   events.jsonl  a line per event, in their order; nothing removes one
//
// LN-1 (whole lines): a file cut off at any byte is readable to its last whole line; a line that could not be written
//       whole is removed.
// LN-2 (each step once): open() removes the steps that are done again and a line that was cut off, so a step has one
//       line, and the lines' steps rise.
// LN-3 (read while a run goes on): readers copy the bytes, since the run may cut the file meanwhile, and the part
//       of a mapped file that is cut off ends its reader by SIGBUS.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/input_file.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

inline constexpr const char* record_folder = "record";  ///< in the run's folder
inline constexpr const char* steps_file = "steps.jsonl";
inline constexpr const char* events_file = "events.jsonl";

/// Not thread-safe. Errors name the file and the reason.
class RunLog {
 public:
  /// Opens the record in `folder`, which is made when missing, of a run that goes on after `last_step`; 0: a run that
  /// begins.
  [[nodiscard]] static Result<RunLog> open(const std::filesystem::path& folder, std::uint64_t last_step);
  /// Returns the last step that the record had at open(), of those up to `last_step`; 0: none.
  [[nodiscard]] std::uint64_t last_step() const { return last_step_; }
  /// Appends a line, given without its end. The system has it on return: it outlives the process, not the machine.
  [[nodiscard]] Status append_step(std::string_view line) { return append(steps_, line); }
  [[nodiscard]] Status append_event(std::string_view line) { return append(events_, line); }

 private:
  struct File {
    std::filesystem::path path;
    FileDescriptor descriptor;
    std::uint64_t size = 0;
  };
  RunLog(File steps, File events, std::uint64_t last_step)
      : steps_(std::move(steps)), events_(std::move(events)), last_step_(last_step) {}
  [[nodiscard]] static Result<File> open_file(const std::filesystem::path& path);
  [[nodiscard]] static Status cut(File& file, std::uint64_t size);
  [[nodiscard]] static Status append(File& file, std::string_view line);

  File steps_;
  File events_;
  std::uint64_t last_step_;
};

/// Returns the step of a line of steps.jsonl; 0 for anything else.
[[nodiscard]] std::uint64_t step_of_line(std::string_view line);
/// Calls `each` with every whole line of a file of a record, without its end, and with the position behind it, until it
/// returns false (LN-1).
[[nodiscard]] Status for_whole_lines(const std::filesystem::path& file,
                                     const std::function<bool(std::string_view line, std::uint64_t end)>& each);
/// Likewise of an open file, with the lines that begin at `position` or behind it.
[[nodiscard]] Status for_whole_lines(const FileDescriptor& file, const std::filesystem::path& path,
                                     std::uint64_t position,
                                     const std::function<bool(std::string_view line, std::uint64_t end)>& each);
/// Returns the whole lines of a file of a record.
[[nodiscard]] Result<std::vector<std::string>> read_record(const std::filesystem::path& file);
/// Likewise the last `most` of steps.jsonl of the steps up to `last`, reading little more of the file.
[[nodiscard]] Result<std::vector<std::string>> read_record_end(
    const std::filesystem::path& file, std::size_t most,
    std::uint64_t last = std::numeric_limits<std::uint64_t>::max());

}  // namespace maestro
