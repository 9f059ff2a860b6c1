// SPDX-License-Identifier: Apache-2.0
// Observes fsync() calls in this test program, and makes some of them fail.
#pragma once

#include <filesystem>
#include <functional>

namespace maestro {

/// During its lifetime, fsync() calls `on_flush` with its file's or folder's path. It fails with the returned errno, or
/// flushes if that is 0. Only one instance may live at a time.
class FlushWatch {
 public:
  explicit FlushWatch(std::function<int(const std::filesystem::path&)> on_flush);
  ~FlushWatch();
  FlushWatch(const FlushWatch&) = delete;
  FlushWatch& operator=(const FlushWatch&) = delete;
};

}  // namespace maestro
