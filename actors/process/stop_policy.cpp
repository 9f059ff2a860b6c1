// SPDX-License-Identifier: Apache-2.0
#include "actors/process/stop_policy.hpp"

#include <signal.h>

#include <chrono>

#include "actors/control/control_place.hpp"
#include "actors/process/emergency_exit.hpp"

namespace maestro {

namespace {
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
}  // namespace

void StopPolicy::signalled(int signal) {
  const StopRequests::Wish wish = requests_.signalled(signal, Clock::now());
  const bool repeated = wish == StopRequests::Wish::leave_at_once;
  if (complete_ && !repeated) return;
  if (!part_.is_root() && supervised_)
    return send_from_outside(built_.supervisor(), Interrupt{});  // rank 0 ends the run in order
  if (!begun_) leave_before_the_start(signal_name(signal));
  if (!repeated) return stop_in_order(signal == SIGINT ? "" : signal_name(signal));
  part_.console.finish();
  leave(130);
}

void StopPolicy::stop_in_order(const std::string& reason) {
  stopping_ = true;
  send_from_outside(built_.coordinator(), Interrupt{reason});
}

void StopPolicy::stop_for_another() {
  if (!begun_) leave_before_the_start("a signal to another process");
  stop_in_order("a signal to another process");
}

void StopPolicy::expired(const std::string& line) {
  if (!replaceable_) part_.console.error(line);
  leave(1);
}

void StopPolicy::leave_failed(const std::vector<ProcessIdentity>& lost) {
  EmergencyExit emergency_exit;
  emergency_exit.last = [this, lost] { tidy_up(lost); };
  emergency_exit.lost = lost;
  emergency_exit.close = [this] {
    built_.stop_network();
    built_.end_groups("the run has failed");
  };
  exit_now(*part_.launcher, emergency_exit);
}

void StopPolicy::leave(int status) {
  EmergencyExit emergency_exit;
  emergency_exit.status = status;
  emergency_exit.last = [this] {
    tidy_up({});
    services_.remove_socket();
  };
  emergency_exit.patience = milliseconds(0);
  exit_now(*part_.launcher, emergency_exit);
}

void StopPolicy::leave_before_the_start(const std::string& cause) {
  if (leaving_.exchange(true)) await_exit();  // signals to this and another process arrive on different threads
  part_.console.finish();
  // If rank 0 has started this process, rank 0 reports its end or prints another line.
  if (part_.place.launcher != JobLauncher::maestro) part_.console.error("ended by " + cause + " before the first step");
  leave(130);
}

void StopPolicy::tidy_up(const std::vector<ProcessIdentity>& lost) const {
  if (part_.job_start) part_.job_start->tidy();
  remove_sockets(lost, part_.launcher->pids());
}

void remove_sockets(const std::vector<ProcessIdentity>& lost, const std::vector<std::int64_t>& children) {
  for (const ProcessIdentity& gone : lost) remove_sockets_of(gone);
  for (const std::int64_t child : children) remove_sockets_of(child);
  remove_sockets_of(own_identity().pid);
}

}  // namespace maestro
