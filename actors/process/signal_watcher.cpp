// SPDX-License-Identifier: Apache-2.0
#include "actors/process/signal_watcher.hpp"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include "runtime/core/last_words.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr std::pair<int, const char*> ending_signals[] = {
    {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}, {SIGXCPU, "SIGXCPU"}};
constexpr int status_of_a_signal = 130;

// State of the SignalWatcher, global because a signal handler can access only globals.
std::atomic<bool> watched = false;
std::atomic<unsigned> arrived = 0;  // a bit for each signal that the watcher has not taken yet, and one for its end
static_assert(std::atomic<unsigned>::is_always_lock_free);
constexpr unsigned end_bit = 1U << std::size(ending_signals);

/// Posted after every change of `arrived`. A semaphore, as ThreadSanitizer runs signal handlers inside sem_wait(), but
/// not inside read().
class Arrivals {
 public:
  Arrivals() { sem_init(&semaphore_, 0, 0); }
  void post() { sem_post(&semaphore_); }  // async-signal-safe
  void wait() {
    while (sem_wait(&semaphore_) != 0) {  // interrupted by a signal
    }
  }

 private:
  sem_t semaphore_{};
} arrivals;

/// Time of the last signal taken by a watcher, in nanoseconds of the monotonic clock: the same request may arrive again
/// after it has ended the run.
std::atomic<std::int64_t> taken_at = 0;
std::atomic<bool> started_by_rank_0 = false;  // read by the signal handler

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

std::size_t place_of(int ending_signal) {
  std::size_t place = 0;
  while (ending_signals[place].first != ending_signal) ++place;
  return place;
}

/// Calls only async-signal-safe functions.
void on_ending_signal(int signal) {
  const int before = errno;
  const std::int64_t repeat_after = std::chrono::nanoseconds(StopRequests::repeat_after).count();
  const std::size_t place = place_of(signal);
  if (watched) {
    arrived |= 1U << place;
    arrivals.post();
    if (taken_at == 0) taken_at = nanoseconds_now();
    errno = before;
    return;
  }
  if (taken_at != 0 && nanoseconds_now() - taken_at < repeat_after) return;
  if (started_by_rank_0) _exit(status_of_a_signal);  // rank 0 reports it
  char message[48] = "ended by ";
  std::strcat(message, ending_signals[place].second);
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
  taken_at = 0;  // an earlier run of this process is over
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
  arrived = 0;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& problem) {
    throw JobError(std::string("cannot watch signals: no thread: ") + problem.what(), ErrorCode::unavailable);
  }
  watched = true;
  set_mask(SIG_BLOCK);  // later threads inherit it: their calls are not interrupted
}

SignalWatcher::~SignalWatcher() {
  if (forgives_) taken_at = nanoseconds_now();
  watched = false;
  arrived |= end_bit;
  arrivals.post();
  thread_.join();
  set_mask(SIG_UNBLOCK);
}

void SignalWatcher::run() {
  unsigned taken = 0;
  while ((taken & end_bit) == 0) {
    arrivals.wait();
    taken = arrived.exchange(0);
    for (std::size_t place = 0; place < std::size(ending_signals); ++place) {
      if ((taken & (1U << place)) != 0) on_signal_(ending_signals[place].first);
    }
  }
}

}  // namespace maestro
