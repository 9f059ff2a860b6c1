// SPDX-License-Identifier: Apache-2.0
// A line that a run prints: text, text after the time, or a JSON object. Pure: console.hpp owns the terminal.
//
// LJ-1 (one object): a line in JSON is one valid JSON object without a line break, whatever bytes its texts have. Its
//       first members are "time", "level" and "message".
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/line_form.hpp"
#include "runtime/observe/report.hpp"

namespace maestro {

enum class LogLevel { info, warning, error, progress };

/// Members of a line in JSON in addition to time, level and message. The name "a.b" is member b of the object a.
using LogFields = std::vector<std::pair<std::string, ReportValue>>;

struct LogLine {
  LogLevel level = LogLevel::info;
  std::string message;  ///< printable
  LogFields fields;     ///< members in JSON only
};

using SystemTime = std::chrono::system_clock::time_point;

/// Returns the line, with its line break. An error begins with "error: " and a warning with "warning: " as text.
[[nodiscard]] std::string format_line(const LogLine& line, LineForm form, SystemTime time);

/// A line that a process on another host has printed.
struct RelayedLine {
  std::string printed;  ///< line in the form of this process, with the host and a line break
  std::string text;     ///< text without a time, for a message
};
/// Returns a line of another host with its time, if it has one.
[[nodiscard]] RelayedLine relayed_line(const std::string& host, std::string_view line, LineForm form, SystemTime time);

}  // namespace maestro
