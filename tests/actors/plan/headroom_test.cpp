// SPDX-License-Identifier: Apache-2.0
#include "actors/plan/headroom.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

TEST(Headroom, that_is_there_leaves_nothing_open) {
  const int before = dup(0);
  close(before);
  EXPECT_NO_THROW(require_headroom({.threads = 8, .descriptors = 20}));
  const int after = dup(0);
  close(after);
  EXPECT_EQ(before, after);
}

TEST(Headroom, of_descriptors_that_is_missing_is_an_error_with_the_limit) {
  const pid_t child = fork();  // the limit is this process's for good
  if (child == 0) {
    const rlimit few{23, 23};
    setrlimit(RLIMIT_NOFILE, &few);
    try {
      require_headroom({.threads = 1, .descriptors = 64});
    } catch (const JobError& error) {
      const std::string text = error.what();
      _exit(text.find("(limit 23)") != std::string::npos && text.find("ulimit -n") != std::string::npos ? 0 : 2);
    }
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace maestro
