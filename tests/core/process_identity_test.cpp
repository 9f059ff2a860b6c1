// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/process_identity.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace maestro {
namespace {

/// A child process that waits for a signal.
class Child {
 public:
  Child() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
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

TEST(ProcessIdentity, a_process_that_has_ended_is_not_alive_before_its_status_is_read) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  const ProcessIdentity child = identity_of(pid);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(is_alive(child));
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_FALSE(is_alive(child));
}

TEST(ProcessIdentity, a_stopped_process_is_seen_and_alive) {
  Child child;
  EXPECT_FALSE(is_stopped(child.pid()));
  ASSERT_EQ(kill(child.pid(), SIGSTOP), 0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_TRUE(is_stopped(child.pid()));
  EXPECT_TRUE(is_alive(identity_of(child.pid())));
  ASSERT_EQ(kill(child.pid(), SIGCONT), 0);
}

TEST(ProcessIdentity, the_text_of_an_identity_shows_whether_its_process_is_dead) {
  Child child;
  const ProcessIdentity process = identity_of(child.pid());
  const std::string text = identity_text(process);
  EXPECT_EQ(text.find_first_not_of("0123456789abcdef-"), std::string::npos) << text;
  EXPECT_FALSE(is_of_dead_process(text));
  child.end();
  EXPECT_TRUE(is_of_dead_process(text));
  EXPECT_TRUE(is_of_dead_process(text + "-part"));
  ProcessIdentity elsewhere = process;
  elsewhere.pid_namespace += 1;
  EXPECT_FALSE(is_of_dead_process(identity_text(elsewhere))) << "a process of another namespace may be alive";
  EXPECT_FALSE(is_of_dead_process("0" + text)) << "another boot";
  for (const char* other : {"", "-", "data", "1-2-3"}) EXPECT_FALSE(is_of_dead_process(other)) << other;
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
