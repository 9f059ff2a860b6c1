// SPDX-License-Identifier: Apache-2.0
// Follows a file of a record (RunLog) that grows, and that a resumed run cuts and writes again.
//
// TL-1 (each line once): over all calls of read(), every complete line comes once and in order, since the beginning or
//       since the last call of `again`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

/// Not thread-safe.
class RecordTail {
 public:
  explicit RecordTail(std::filesystem::path file) : file_(std::move(file)) {}
  /// Calls `each` with the complete lines, without their ends, that the file has gained since the last call. If the
  /// lines read so far are no longer its beginning, calls `again` first, and all lines come anew. An error of `each`
  /// ends the reading; other errors name the file and the reason.
  [[nodiscard]] Status read(const std::function<Status(std::string_view line)>& each,
                            const std::function<void()>& again);

 private:
  std::filesystem::path file_;
  std::uint64_t end_ = 0;  // bytes up to the end of the last line read
  std::string last_;       // last line read, with its end; a difference shows that the file was cut
};

}  // namespace maestro
