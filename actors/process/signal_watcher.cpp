// SPDX-License-Identifier: Apache-2.0
#include "actors/process/signal_watcher.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "runtime/core/last_words.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr std::pair<int, const char*> ending_signals[] = {
    {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}, {SIGXCPU, "SIGXCPU"}};
constexpr int status_of_a_signal = 130;

/// The pipe of the SignalWatcher; negative: none. A signal handler can access nothing but a global.
std::atomic<int> watcher_pipe = -1;
static_assert(std::atomic<int>::is_always_lock_free);
/// Time of the last signal taken by a watcher, in nanoseconds of the monotonic clock: the same request may arrive again
/// when the run has ended by it.
std::atomic<std::int64_t> taken_at = 0;
std::atomic<bool> started_by_rank_0 = false;  // a global for the same reason

sigset_t set_of_ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const auto& [signal, name] : ending_signals) sigaddset(&set, signal);
  return set;
}

std::int64_t nanoseconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1000000000} + now.tv_nsec;
}

/// Calls only async-signal-safe functions.
void on_ending_signal(int signal) {
  const int before = errno;
  const int pipe = watcher_pipe.load();
  const std::int64_t repeat_after = std::chrono::nanoseconds(StopRequests::repeat_after).count();
  if (pipe < 0 && taken_at != 0 && nanoseconds_now() - taken_at < repeat_after) return;
  if (pipe < 0 && started_by_rank_0) _exit(status_of_a_signal);  // rank 0 reports it
  if (pipe >= 0) {
    const auto number = static_cast<unsigned char>(signal);
    (void)!write(pipe, &number, 1);
    if (taken_at == 0) taken_at = nanoseconds_now();
    errno = before;
    return;
  }
  char message[48] = "ended by ";
  for (const auto& [known, name] : ending_signals) {
    if (known == signal) std::strcat(message, name);
  }
  write_last_words(message);
  _exit(status_of_a_signal);
}

void set_mask(int how) {
  const sigset_t set = set_of_ending_signals();
  pthread_sigmask(how, &set, nullptr);
}

}  // namespace

void prepare_signals() {
  for (const int fault : {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE}) signal(fault, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  started_by_rank_0 = std::getenv("MAESTRO_PARENT") != nullptr;
  struct sigaction action {};
  action.sa_handler = on_ending_signal;
  action.sa_mask = set_of_ending_signals();
  action.sa_flags = SA_RESTART;
  for (const auto& [signal, name] : ending_signals) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (signal != SIGHUP || before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
  sigset_t none;  // a launcher or an early start may have blocked any
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

std::string signal_name(int signal) {
  for (const auto& [known, name] : ending_signals) {
    if (known == signal) return name;
  }
  return "signal " + std::to_string(signal);
}

StopRequests::Wish StopRequests::signalled(int signal, Time now) {
  if (!first_) {
    first_ = now;
    return Wish::stop_in_order;
  }
  return signal == SIGINT && now - *first_ >= repeat_after ? Wish::leave_at_once : Wish::nothing;
}

SignalWatcher::SignalWatcher(std::function<void(int)> on_signal) : on_signal_(std::move(on_signal)) {
  if (pipe2(ends_, O_CLOEXEC) != 0) {
    throw JobError(std::string("cannot watch signals: no pipe: ") + std::strerror(errno), ErrorCode::unavailable);
  }
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& problem) {
    close(ends_[0]);
    close(ends_[1]);
    throw JobError(std::string("cannot watch signals: no thread: ") + problem.what(), ErrorCode::unavailable);
  }
  watcher_pipe = ends_[1];
  set_mask(SIG_BLOCK);  // later threads inherit it: their calls are not interrupted
}

SignalWatcher::~SignalWatcher() {
  watcher_pipe = -1;
  const unsigned char end = 0;
  (void)!write(ends_[1], &end, 1);
  thread_.join();
  set_mask(SIG_UNBLOCK);
  close(ends_[0]);
  close(ends_[1]);
}

void SignalWatcher::run() {
  while (true) {
    unsigned char number = 0;
    const ssize_t got = read(ends_[0], &number, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1 || number == 0) return;
    on_signal_(number);
  }
}

}  // namespace maestro
