// SPDX-License-Identifier: Apache-2.0
#include "actors/plan/headroom.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <latch>
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

std::size_t startable(std::size_t most) {
  std::latch all(1);
  std::vector<std::thread> started;
  try {
    while (started.size() < most) started.emplace_back([&all] { all.wait(); });
  } catch (const std::system_error&) {  // the limit
  }
  all.count_down();
  for (std::thread& thread : started) thread.join();
  return started.size();
}

std::string limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return " (limit " + std::to_string(limit.rlim_cur) + ")";
}

}  // namespace

void require_headroom(const Headroom& wanted) {
  if (const std::size_t files = openable(wanted.descriptors); files < wanted.descriptors) {
    throw JobError("only " + std::to_string(files) + " more files can be opened" + limit_of(RLIMIT_NOFILE) +
                       ", and a run needs " + std::to_string(wanted.descriptors) + ": raise `ulimit -n`",
                   ErrorCode::unavailable);
  }
  if (const std::size_t threads = startable(wanted.threads); threads < wanted.threads) {
    throw JobError("only " + std::to_string(threads) + " more threads can be started" + limit_of(RLIMIT_NPROC) +
                       ", and a run needs " + std::to_string(wanted.threads) +
                       ": raise `ulimit -u`, the memory limit or the control group's pids.max",
                   ErrorCode::unavailable);
  }
}

}  // namespace maestro
