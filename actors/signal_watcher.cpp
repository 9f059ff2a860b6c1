#include "actors/signal_watcher.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>

namespace maestro {

namespace {

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void block_signals() {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

SignalWatcher::SignalWatcher(std::function<void(int)> on_signal)
    : on_signal_(std::move(on_signal)), stop_event_(eventfd(0, EFD_CLOEXEC)), thread_([this] { run(); }) {}

SignalWatcher::~SignalWatcher() {
  const std::uint64_t one = 1;
  (void)!write(stop_event_, &one, sizeof one);
  thread_.join();
  close(stop_event_);
}

void SignalWatcher::run() {
  const sigset_t set = watched_signals();
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  int count = 0;
  while (true) {
    pollfd watched[2] = {{signals, POLLIN, 0}, {stop_event_, POLLIN, 0}};
    if (poll(watched, 2, -1) < 0) continue;
    if (watched[1].revents != 0) break;
    signalfd_siginfo info;
    if (read(signals, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) on_signal_(++count);
  }
  close(signals);
}

}  // namespace maestro
