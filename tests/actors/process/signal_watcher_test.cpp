// SPDX-License-Identifier: Apache-2.0
#include "actors/process/signal_watcher.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <set>

namespace maestro {
namespace {

using Wish = StopRequests::Wish;
using std::chrono::milliseconds;

TEST(StopRequests, a_signal_that_is_sent_twice_at_once_is_one_request) {  // SW-2
  StopRequests requests;
  const StopRequests::Time now{};
  EXPECT_EQ(requests.signalled(SIGINT, now), Wish::stop_in_order);
  EXPECT_EQ(requests.signalled(SIGINT, now + milliseconds(999)), Wish::nothing);
  EXPECT_EQ(requests.signalled(SIGINT, now + milliseconds(1000)), Wish::leave_at_once);
}

TEST(StopRequests, only_ctrl_c_leaves_at_once) {  // SW-2
  StopRequests requests;
  const StopRequests::Time now{};
  EXPECT_EQ(requests.signalled(SIGTERM, now), Wish::stop_in_order);
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGXCPU}) {
    EXPECT_EQ(requests.signalled(signal, now + milliseconds(5000)), Wish::nothing) << signal;
  }
  EXPECT_EQ(requests.signalled(SIGINT, now + milliseconds(5000)), Wish::leave_at_once);
}

/// Runs `body` in a child process. Returns its exit status, or minus the signal that ended it.
template <class Body>
int status_of(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

class SignalWatcherTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer holds signals back, and hangs in the forked child of a program with threads";
#endif
  }
};

TEST_F(SignalWatcherTest, is_called_for_every_ending_signal) {
  EXPECT_EQ(status_of([] {
              prepare_signals();
              for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU}) {
                std::promise<int> seen;
                const SignalWatcher watcher([&seen](int number) { seen.set_value(number); });
                kill(getpid(), signal);
                if (seen.get_future().get() != signal) _exit(signal);
              }
            }),
            0);
}

TEST_F(SignalWatcherTest, signals_that_arrive_during_a_call_are_taken_after_it) {
  EXPECT_EQ(status_of([] {
              prepare_signals();
              std::promise<void> begun;
              std::promise<void> go;
              std::promise<void> all;
              std::multiset<int> seen;
              const SignalWatcher watcher([&](int number) {
                seen.insert(number);
                if (seen.size() == 1) {
                  begun.set_value();
                  go.get_future().wait();
                }
                if (seen.size() == 3) all.set_value();
              });
              kill(getpid(), SIGINT);
              begun.get_future().wait();
              kill(getpid(), SIGTERM);
              kill(getpid(), SIGHUP);
              go.set_value();
              all.get_future().wait();
              if (seen != std::multiset<int>{SIGINT, SIGTERM, SIGHUP}) _exit(1);
            }),
            0);
}

TEST_F(SignalWatcherTest, without_one_a_signal_ends_the_process_with_status_130) {  // SW-1
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU}) {
    EXPECT_EQ(status_of([signal] {
                prepare_signals();
                kill(getpid(), signal);
                while (true) pause();
              }),
              130);
    EXPECT_EQ(status_of([signal] {
                prepare_signals();
                {
                  const SignalWatcher over([](int) {});
                }
                kill(getpid(), signal);
                while (true) pause();
              }),
              130);
  }
}

TEST_F(SignalWatcherTest, a_request_that_is_repeated_at_once_when_the_run_has_ended_is_the_same) {  // SW-1
  EXPECT_EQ(status_of([] {
              prepare_signals();
              std::promise<void> seen;
              {
                const SignalWatcher watcher([&seen](int) { seen.set_value(); });
                kill(getpid(), SIGTERM);
                seen.get_future().wait();
              }
              kill(getpid(), SIGTERM);
            }),
            0);
}

TEST_F(SignalWatcherTest, signals_just_after_a_run_that_has_ended_change_nothing) {  // SW-1
  EXPECT_EQ(status_of([] {
              prepare_signals();
              {
                SignalWatcher watcher([](int) {});
                watcher.forgive_late_signals();
              }
              kill(getpid(), SIGTERM);
            }),
            0);
}

TEST_F(SignalWatcherTest, preparation_takes_faults_back_from_libraries) {
  EXPECT_EQ(status_of([] {
              signal(SIGSEGV, [](int) { _exit(1); });
              prepare_signals();
              raise(SIGSEGV);
            }),
            -SIGSEGV);
}

TEST_F(SignalWatcherTest, preparation_leaves_a_hangup_ignored_that_was) {
  EXPECT_EQ(status_of([] {
              signal(SIGHUP, SIG_IGN);
              prepare_signals();
              kill(getpid(), SIGHUP);
            }),
            0);
}

}  // namespace
}  // namespace maestro
