// SPDX-License-Identifier: Apache-2.0
// Reads a merged trace slice by slice: a trace in memory would take ten times its size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "runtime/core/result.hpp"

namespace maestro {

/// A slice of a merged trace.
struct TraceFileSlice {
  std::string track;  ///< name
  std::string name;
  std::string category;
  double start_ms = 0;
  double length_ms = 0;
  std::map<std::string, std::variant<std::int64_t, std::string>> args;

  [[nodiscard]] double end_ms() const { return start_ms + length_ms; }
  /// Returns the argument, or `otherwise` without a number of that name.
  [[nodiscard]] std::int64_t number(const std::string& key, std::int64_t otherwise = 0) const;
  /// Returns the argument; empty without a text of that name.
  [[nodiscard]] std::string_view text(const std::string& key) const;
};

/// Facts of a merged trace, in addition to its events.
struct TraceAbout {
  std::uint64_t dropped = 0;                 ///< number of dropped events
  std::map<std::string, std::string> facts;  ///< facts from TraceRecorder::describe
};

/// Calls `take` for each slice, by time. Errors name the file: it cannot be read, or is not a trace of maestro.
[[nodiscard]] Result<TraceAbout> for_trace_slices(const std::filesystem::path& trace,
                                                  const std::function<void(const TraceFileSlice&)>& take);

}  // namespace maestro
