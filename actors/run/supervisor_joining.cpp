// SPDX-License-Identifier: Apache-2.0
// Processes that join a running job, and leave it (SV-10).
#include <algorithm>

#include "actors/plan/seats.hpp"
#include "actors/run/supervisor.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

namespace {
constexpr std::chrono::seconds leave_limit(5);  // for rank 0's answer

SeatAnswer refused(const std::string& why) {
  return {{}, {}, why};
}

}  // namespace

/// Returns a line; empty: seats can move now.
std::string Supervisor::why_nothing_moves() const {
  if (!options_.seats.may_join) {
    return "no section of the job has replicas = {least, most} with least below most, so no process can join or leave";
  }
  if (membership_.phase() < RunPhase::running) return "the run has not begun yet";
  if (membership_.phase() > RunPhase::running || stops()) return "the run is ending";
  if (successor_ || !to_start_.empty()) return "another process is joining or starting again; try again";
  if (change_.under_way() || !held_.empty()) return "replicas are moving between processes; try again";
  return {};
}

SeatAnswer Supervisor::let_join(const JoinWanted& wanted) {
  if (const std::string why = why_nothing_moves(); !why.empty()) return refused(why);
  ProcessId joining(1);
  while (joining.value() < membership_.most_processes() && !membership_.has_left(joining)) {
    joining = ProcessId(joining.value() + 1);
  }
  const auto seats = share_seats(*options_.graph, seats_of(directory_), joining, wanted.section);
  if (!seats) return refused(seats.error().message);
  if (joining.value() >= membership_.most_processes()) {
    return refused("the run has as many processes as it can; `maestro leave` ends one that has no replica");
  }
  successor_ = Successor{joining, wanted.section, {}, false};
  started_new_.erase(joining);  // of a process that had the number before
  return {joining, text_of(*seats, *options_.graph), {}};
}

SeatAnswer Supervisor::let_leave(const LeaveWanted& wanted) {
  if (const std::string why = why_nothing_moves(); !why.empty()) return refused(why);
  const std::string name = "process " + std::to_string(wanted.process.value());
  if (wanted.process == ProcessId(0)) return refused(name + " coordinates the run; `maestro stop` ends it");
  const auto leaver = std::ranges::find(directory_.processes, wanted.process, &ProcessInfo::process);
  if (leaver == directory_.processes.end()) return refused("there is no " + name + "; `maestro status` shows them");
  const auto moved = adopt_seats(*options_.graph, seats_of(directory_), wanted.process);
  if (!moved) return refused(name + " cannot leave: " + moved.error().message);
  if (!membership_.leave(wanted.process)) return refused("the run is ending");
  leaver_ = leaver->supervisor;
  const std::string who = process_label(*leaver, *options_.graph);
  Directory remaining = directory_;
  std::erase_if(remaining.processes, [&](const ProcessInfo& process) { return process.process == wanted.process; });
  const std::string follows = moved->empty() ? "it had no section" : text_of(*moved, *options_.graph);
  move_reason_ = who + " leaves; " + follows;
  send_to(this, leaver_, MoveSeats{Epoch(options_.seats.epoch.value() + generation_ + 1), {}, {wanted.process}, {}});
  begin_move({{}, {}, {wanted.process}, *moved}, std::move(remaining));
  return {wanted.process, follows, {}};
}

void Supervisor::dismiss_leaver() {
  if (leaver_) send_to(this, leaver_, Dismissed{});
  leaver_ = nullptr;
}

/// A signal to a process that has joined: its user wants it back.
void Supervisor::leave_by_signal() {
  request(root_, leave_limit, LeaveWanted{options_.process})
      .then(
          [this](const SeatAnswer& answer) {
            if (!answer.refusal.empty()) options_.seats.warn("cannot leave the run now: " + answer.refusal);
          },
          [](const caf::error&) {});  // rank 0 is lost, which is reported
}

void Supervisor::leave_run() {
  membership_.end();
  RunOutcome outcome;
  outcome.ok = outcome.left = true;
  options_.outcome->set(std::move(outcome));
}

}  // namespace maestro
