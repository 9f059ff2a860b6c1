// SPDX-License-Identifier: Apache-2.0
#include "actors/job/headroom.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

/// Runs `check` in a child process, whose limits it may lower. Returns whether its error contains all texts.
template <class Check>
bool refused(Check check, std::initializer_list<const char*> texts) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      check();
    } catch (const JobError& error) {
      const std::string text = error.what();
      _exit(std::ranges::all_of(texts, [&](const char* part) { return text.find(part) != std::string::npos; }) ? 0 : 2);
    }
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

TEST(Headroom, that_is_there_leaves_nothing_open) {
  const int before = dup(0);
  close(before);
  EXPECT_NO_THROW(require_headroom({.threads = 8, .descriptors = 20}));
  const int after = dup(0);
  close(after);
  EXPECT_EQ(before, after);
}

TEST(Headroom, of_descriptors_that_is_missing_is_an_error_with_the_limit) {
  EXPECT_TRUE(refused(
      [] {
        const rlimit few{23, 23};
        setrlimit(RLIMIT_NOFILE, &few);
        require_headroom({.threads = 1, .descriptors = 64});
      },
      {"(limit 23)", "ulimit -n"}));
}

TEST(Headroom, of_threads_that_is_missing_is_an_error_with_the_address_space) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "its shadow memory is address space, too";
#endif
  EXPECT_TRUE(refused(
      [] {
        std::size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        const rlim_t space = pages * static_cast<rlim_t>(getpagesize()) + (rlim_t{32} << 20);
        const rlimit little{space, space};
        setrlimit(RLIMIT_AS, &little);
        require_headroom({.threads = 8, .allocating = true});
      },
      {" of 8 further threads can be started in an address space of ", "ulimit -v"}));
}

}  // namespace
}  // namespace maestro
