// SPDX-License-Identifier: Apache-2.0
#include "actors/process/emergency_exit.hpp"

#include <unistd.h>

#include <future>
#include <memory>
#include <system_error>
#include <thread>

#include "transport/fabric/shared_memory_sweep.hpp"

namespace maestro {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds close_limit(500);
constexpr milliseconds death_limit(300);  // unmapping the memory of a killed process may take time

std::vector<ProcessHandle> handles_of(const std::vector<ProcessIdentity>& processes) {
  std::vector<ProcessHandle> handles;
  for (const ProcessIdentity& process : processes) handles.emplace_back(process);
  return handles;
}

[[noreturn]] void kill_sweep_and_exit(Launcher& launcher, const EmergencyExit& emergency_exit,
                                      const std::vector<ProcessHandle>& lost) {
  launcher.kill_all();
  const auto deadline = Clock::now() + death_limit;
  for (const ProcessHandle& process : lost) process.wait(deadline);
  launcher.wait(death_limit);
  // The run's error has been printed already, so a segment that cannot be removed is not reported.
  (void)sweep_shared_memory();
  (void)sweep_own_shared_memory();
  if (emergency_exit.last) emergency_exit.last();
  _exit(emergency_exit.status);
}

/// Runs `close` on a thread that is abandoned if it hangs.
void close_within_limit(const std::function<void()>& close) {
  auto closed = std::make_shared<std::promise<void>>();  // shared with a thread that may outlive this call
  const std::future<void> done = closed->get_future();
  try {
    std::thread([close, closed] {
      close();
      closed->set_value();
    }).detach();
  } catch (const std::system_error&) {
    return;  // without a thread the process ends without the orderly part
  }
  (void)done.wait_for(close_limit);
}

}  // namespace

void await_exit() {
  while (true) pause();
}

void exit_now(Launcher& launcher, const EmergencyExit& emergency_exit) {
  const std::vector<ProcessHandle> lost = handles_of(emergency_exit.lost);
  for (const ProcessHandle& process : lost) process.kill();
  if (emergency_exit.close) close_within_limit(emergency_exit.close);
  launcher.wait(emergency_exit.patience);
  kill_sweep_and_exit(launcher, emergency_exit, lost);
}

}  // namespace maestro
