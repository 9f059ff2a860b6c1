// SPDX-License-Identifier: Apache-2.0
#include "actors/job/headroom.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <latch>
#include <optional>
#include <semaphore>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

std::size_t openable(std::size_t most) {
  std::vector<int> opened;
  while (opened.size() < most) {
    const int descriptor = eventfd(0, EFD_CLOEXEC);
    if (descriptor < 0) break;
    opened.push_back(descriptor);
  }
  for (const int descriptor : opened) close(descriptor);
  return opened.size();
}

/// Returns how many threads can be started, up to `most`. `allocating`: each thread allocates its first block before
/// the next is started, as in a process that starts.
std::size_t startable(std::size_t most, bool allocating) {
  std::latch all(1);
  std::binary_semaphore allocated(0);
  std::vector<std::thread> started;
  const auto wait = [&] {
    void* volatile block = allocating ? std::malloc(1) : nullptr;  // volatile: for the compiler it has an effect
    allocated.release();
    all.wait();
    std::free(block);
  };
  try {
    while (started.size() < most) {
      started.emplace_back(wait);
      allocated.acquire();
    }
  } catch (const std::system_error&) {  // the limit is reached
  }
  all.count_down();
  for (std::thread& thread : started) thread.join();
  return started.size();
}

std::optional<rlim_t> limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::string text_of(std::optional<rlim_t> limit) {
  return limit ? " (limit " + std::to_string(*limit) + ")" : std::string();
}

/// Returns the limit that refused a thread, and the remedy.
std::string limits_of_threads() {
  if (const auto space = limit_of(RLIMIT_AS)) {
    return " in an address space of " + std::to_string(*space >> 20) + " MiB: raise `ulimit -v` or `ulimit -u`";
  }
  return text_of(limit_of(RLIMIT_NPROC)) + ": raise `ulimit -u`, the memory limit or the control group's pids.max";
}

}  // namespace

void require_headroom(const Headroom& wanted) {
  if (const std::size_t files = openable(wanted.descriptors); files < wanted.descriptors) {
    throw JobError("only " + std::to_string(files) + " more files can be opened" + text_of(limit_of(RLIMIT_NOFILE)) +
                       ", and a run needs " + std::to_string(wanted.descriptors) + ": raise `ulimit -n`",
                   ErrorCode::unavailable);
  }
  if (const std::size_t threads = startable(wanted.threads, wanted.allocating); threads < wanted.threads) {
    throw JobError("only " + std::to_string(threads) + " of " + std::to_string(wanted.threads) +
                       " further threads can be started" + limits_of_threads(),
                   ErrorCode::unavailable);
  }
}

}  // namespace maestro
