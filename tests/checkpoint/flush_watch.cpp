// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/flush_watch.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace maestro {
namespace {

std::function<int(const std::filesystem::path&)> watch;

}  // namespace

FlushWatch::FlushWatch(std::function<int(const std::filesystem::path&)> on_flush) {
  watch = std::move(on_flush);
}

FlushWatch::~FlushWatch() {
  watch = nullptr;
}

}  // namespace maestro

/// Replaces the C library's function in this program.
extern "C" int fsync(int file) {
  if (maestro::watch) {
    if (const int failure = maestro::watch(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file)))) {
      errno = failure;
      return -1;
    }
  }
  return static_cast<int>(syscall(SYS_fsync, file));
}
