// SPDX-License-Identifier: Apache-2.0
// The record of a run, <train.out>/record: files of lines, each a JSON object, appended during the run.
//
//   steps.jsonl   a line per finished training step, in order; its first member is "step"
//   events.jsonl  a line per event, in order; no line is ever removed
//   rollouts.jsonl  a line per validation of a run whose samples are made, in order, about the samples of the step
//                 before; its first member is "step"
//
// LN-1 (whole lines): a file that was cut off at any byte is readable up to its last complete line; a line that was
//       only partly written is removed.
// LN-2 (each step once): open() removes lines of steps that will be repeated and an incomplete last line, so that a
// step
//       has one line at most, and the lines' steps rise.
// LN-3 (read while a run goes on): readers copy the bytes, since the run may cut the file meanwhile, and access to the
//       removed part of a mapped file ends the reader by SIGBUS.
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

inline constexpr const char* record_folder = "record";  ///< name in the run's folder
inline constexpr const char* steps_file = "steps.jsonl";
inline constexpr const char* events_file = "events.jsonl";
inline constexpr const char* rollouts_file = "rollouts.jsonl";

/// Writes the record. Not thread-safe. Errors name the file and the reason.
class RunLog {
 public:
  /// Opens the record in `folder` of a run that continues after `last_step`, or begins (0). Makes a missing folder.
  [[nodiscard]] static Result<RunLog> open(const std::filesystem::path& folder, std::uint64_t last_step);
  /// Returns the last step up to `last_step` that the record contained at open(); 0: none.
  [[nodiscard]] std::uint64_t last_step() const { return last_step_; }
  /// Appends a line, given without its end. On return the system has it: it survives a crash of the process, but not of
  /// the machine.
  [[nodiscard]] Status append_step(std::string_view line) { return append(steps_, line); }
  [[nodiscard]] Status append_event(std::string_view line) { return append(events_, line); }
  /// Appends to rollouts.jsonl, which is made with its first line.
  [[nodiscard]] Status append_rollouts(std::string_view line);

 private:
  struct File {
    std::filesystem::path path;
    FileDescriptor descriptor;
    std::uint64_t size = 0;
  };
  RunLog(File steps, File events, std::filesystem::path rollouts, std::uint64_t last_step)
      : steps_(std::move(steps)),
        events_(std::move(events)),
        rollouts_{std::move(rollouts), FileDescriptor()},
        last_step_(last_step) {}
  /// Opens a file of lines by step and cuts it after the last line of a step up to `last_step`, which it is set to.
  [[nodiscard]] static Result<File> open_lines(const std::filesystem::path& path, std::uint64_t& last_step);
  [[nodiscard]] static Result<File> open_file(const std::filesystem::path& path);
  [[nodiscard]] static Status cut(File& file, std::uint64_t size);
  [[nodiscard]] static Status append(File& file, std::string_view line);

  File steps_;
  File events_;
  File rollouts_;  // opened by its first line
  std::uint64_t last_step_;
};

/// Returns the step of a line of steps.jsonl; 0 for anything else.
[[nodiscard]] std::uint64_t step_of_line(std::string_view line);
/// Calls `each` with every complete line of a record file, without its end, and with the position after it, until it
/// returns false (LN-1).
[[nodiscard]] Status for_whole_lines(const std::filesystem::path& file,
                                     const std::function<bool(std::string_view line, std::uint64_t end)>& each);
/// Calls `each` as above for an open file, with lines that begin at `position` or later.
[[nodiscard]] Status for_whole_lines(const FileDescriptor& file, const std::filesystem::path& path,
                                     std::uint64_t position,
                                     const std::function<bool(std::string_view line, std::uint64_t end)>& each);
/// Returns the complete lines of a record file.
[[nodiscard]] Result<std::vector<std::string>> read_record(const std::filesystem::path& file);
/// Returns the last `most` lines of steps.jsonl with steps up to `last`, and reads little more of the file.
[[nodiscard]] Result<std::vector<std::string>> read_record_end(
    const std::filesystem::path& file, std::size_t most,
    std::uint64_t last = std::numeric_limits<std::uint64_t>::max());

}  // namespace maestro
