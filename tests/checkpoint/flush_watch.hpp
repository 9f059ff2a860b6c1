// SPDX-License-Identifier: Apache-2.0
// Observes the fsync() calls of this test program, and makes some of them fail.
#pragma once

#include <filesystem>
#include <functional>

namespace maestro {

/// While it lives, fsync() calls `on_flush` with the path of its file or folder and fails with the returned errno, or
/// flushes when that is 0. A second must not live at the same time.
class FlushWatch {
 public:
  explicit FlushWatch(std::function<int(const std::filesystem::path&)> on_flush);
  ~FlushWatch();
  FlushWatch(const FlushWatch&) = delete;
  FlushWatch& operator=(const FlushWatch&) = delete;
};

}  // namespace maestro
