// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/process_identity.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace maestro {
namespace {

/// A child that waits for a signal.
class Child {
 public:
  Child() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// Returns the signal that ended it.
  int end() {
    if (pid_ <= 0) return 0;
    int status = 0;
    kill(pid_, SIGTERM);
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WTERMSIG(status);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

std::chrono::steady_clock::time_point soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(10);
}

TEST(ProcessIdentity, names_this_process) {
  EXPECT_EQ(own_identity().pid, getpid());
  EXPECT_GT(own_identity().started, 0u);
  EXPECT_TRUE(is_alive(own_identity()));
  EXPECT_EQ(own_identity(), identity_of(getpid()));
}

TEST(ProcessHandle, ends_the_process_that_it_names) {
  Child child;
  const ProcessHandle handle(identity_of(child.pid()));
  ASSERT_TRUE(handle);
  EXPECT_FALSE(handle.wait(std::chrono::steady_clock::now()));
  EXPECT_TRUE(handle.kill());
  EXPECT_TRUE(handle.wait(soon()));
  EXPECT_EQ(child.end(), SIGKILL);
  EXPECT_FALSE(handle.kill());
}

TEST(ProcessHandle, names_no_process_that_has_the_number_of_an_earlier_one) {  // PI-1
  Child child;
  ProcessIdentity earlier = identity_of(child.pid());
  earlier.started -= 1;
  EXPECT_FALSE(ProcessHandle(earlier));
  EXPECT_FALSE(ProcessHandle(earlier).kill());
  EXPECT_FALSE(is_alive(earlier));
  EXPECT_EQ(child.end(), SIGTERM) << "it was ended by another signal";
}

TEST(ProcessHandle, names_no_process_of_another_namespace) {  // PI-1
  Child child;
  ProcessIdentity elsewhere = identity_of(child.pid());
  elsewhere.pid_namespace += 1;
  EXPECT_FALSE(ProcessHandle(elsewhere).kill());
  EXPECT_FALSE(is_alive(elsewhere));
  EXPECT_EQ(child.end(), SIGTERM) << "it was ended by another signal";
}

TEST(ProcessHandle, of_an_unknown_process_names_none) {
  EXPECT_FALSE(ProcessHandle(ProcessIdentity{}));
  EXPECT_TRUE(ProcessHandle(ProcessIdentity{}).wait(soon()));
}

}  // namespace
}  // namespace maestro
