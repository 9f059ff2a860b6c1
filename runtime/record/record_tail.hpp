// SPDX-License-Identifier: Apache-2.0
// Follows a growing file of a record (RunLog), which a resumed run cuts and continues.
//
// TL-1 (each line once): over all calls of read(), every complete line is passed once and in order, since the beginning
//       or since the last call of `again`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

/// Reads the lines of one file. Not thread-safe.
class RecordTail {
 public:
  explicit RecordTail(std::filesystem::path file) : file_(std::move(file)) {}
  /// Calls `each` with the complete lines, without their ends, that the file has gained since the last call. If the
  /// file no longer begins with the lines read so far, calls `again` first and passes all lines again. An error of
  /// `each` ends the reading; other errors name the file and the reason.
  [[nodiscard]] Status read(const std::function<Status(std::string_view line)>& each,
                            const std::function<void()>& again);

 private:
  std::filesystem::path file_;
  std::uint64_t end_ = 0;  // position after the last line read
  std::string last_;       // last line read, with its end; a difference shows that the file was cut
};

}  // namespace maestro
