#include "actors/departure.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <memory>
#include <thread>

#include "transport/shared_memory_sweep.hpp"

namespace maestro {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds close_limit(500);
constexpr milliseconds death_limit(300);  // a killed process may still have to unmap much memory

void wait_for_death(pid_t pid, Clock::time_point deadline) {
  // By number: glibc 2.36 declares pidfd_open without C linkage.
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0U));
  if (descriptor < 0) return;  // gone and reaped
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  pollfd watched{descriptor, POLLIN, 0};
  (void)poll(&watched, 1, static_cast<int>(std::max<milliseconds::rep>(left.count(), 0)));
  close(descriptor);
}

[[noreturn]] void kill_sweep_and_exit(Launcher& launcher, const Departure& departure) {
  std::vector<pid_t> dead;
  for (const std::int64_t pid : departure.lost_pids) dead.push_back(static_cast<pid_t>(pid));
  for (const pid_t pid : dead) kill(pid, SIGKILL);
  launcher.kill_all();
  for (const std::int64_t pid : launcher.pids()) dead.push_back(static_cast<pid_t>(pid));
  const auto deadline = Clock::now() + death_limit;
  for (const pid_t pid : dead) wait_for_death(pid, deadline);
  // Nobody is left to tell about a segment that cannot be removed; the error of the run has been printed.
  (void)sweep_shared_memory();
  (void)sweep_own_shared_memory();
  if (departure.last) departure.last();
  _exit(departure.status);
}

/// Runs `close` on a thread that is left behind when it hangs.
void close_within_limit(const std::function<void()>& close) {
  auto closed = std::make_shared<std::promise<void>>();  // shared with a thread that may outlive this call
  const std::future<void> done = closed->get_future();
  std::thread([close, closed] {
    close();
    closed->set_value();
  }).detach();
  (void)done.wait_for(close_limit);
}

}  // namespace

void depart(Launcher& launcher, const Departure& departure) {
  for (const std::int64_t pid : departure.lost_pids) kill(static_cast<pid_t>(pid), SIGKILL);
  if (departure.close) close_within_limit(departure.close);
  launcher.wait(departure.patience);
  kill_sweep_and_exit(launcher, departure);
}

}  // namespace maestro
