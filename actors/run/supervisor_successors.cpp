// SPDX-License-Identifier: Apache-2.0
// Successors of lost processes (SV-9).
#include <algorithm>

#include "actors/run/supervisor.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

bool Supervisor::hold_seats_of(const ProcessInfo& lost) {
  const ProcessId gone = lost.process;
  const bool others_start = successor_ || !to_start_.empty();  // their seats could not move without these
  if (!options_.seats.start || others_start || !membership_.leave(gone)) return false;
  note_move(lost, "starting it again");
  held_.insert(gone);
  std::erase_if(directory_.processes, [&](const ProcessInfo& process) { return process.process == gone; });
  for (const ProcessInfo& process : directory_.processes) send_to(this, process.supervisor, ProcessGone{gone, true});
  to_start_.push_back(gone);
  start_next();
  return true;
}

void Supervisor::process_gone(const ProcessGone& lost) {
  (void)membership_.leave(lost.process);  // on rank 0 it has
  forget(lost.process);
  if (lost.awaited) held_.insert(lost.process);
}

void Supervisor::start_next() {
  if (successor_ || to_start_.empty() || !options_.seats.start) return;
  successor_ = to_start_.front();
  to_start_.pop_front();
  options_.seats.start(*successor_);
}

void Supervisor::successor_introduced(const ProcessInfo& info) {
  introduced_ = info;
  introduced_->replicas.clear();  // they begin anew when its seats move
  watch(info);
  PeerList present;
  present.late = true;
  for (const ProcessInfo& peer : directory_.processes) {
    present.all.push_back({peer.process, peer.actors_host, peer.actors_port});
  }
  send_to(this, info.supervisor, present);
}

void Supervisor::miss_absent(const PeerList& present) {
  for (std::uint32_t process = 0; process < membership_.processes(); ++process) {
    const auto there = std::ranges::find(present.all, ProcessId(process), &PeerAddress::process) != present.all.end();
    if (!there && ProcessId(process) != options_.process) membership_.miss(ProcessId(process));
  }
}

void Supervisor::seat_successor() {
  if (!connected_ || change_.under_way()) return;
  MoveSeats order;
  std::ranges::copy_if(home_, std::back_inserter(order.moved),
                       [&](const Seat& seat) { return seat.process == successor_; });
  Directory directory = directory_;
  directory.processes.push_back(*std::exchange(introduced_, std::nullopt));
  connected_ = false;
  move_reason_ = "process " + std::to_string(successor_->value()) + " is there again";
  begin_move(order, std::move(directory));
}

void Supervisor::successor_seated() {
  const auto has = [](const Directory& directory, std::optional<ProcessId> process) {
    return std::ranges::any_of(directory.processes, [&](const auto& one) { return one.process == process; });
  };
  if (successor_ && has(directory_, successor_)) options_.seats.seated(*std::exchange(successor_, std::nullopt));
  seat_successor();  // which waited for the end of this move
  start_next();
}

void Supervisor::successor_failed(const SuccessorFailed& failure) {
  if (successor_ != failure.process || membership_.phase() != RunPhase::running) return;
  const std::string problem =
      "process " + std::to_string(failure.process.value()) + " did not start again: " + failure.problem;
  if (held_.contains(failure.process)) return fail(problem, true, false, true);
  if (membership_.leave(failure.process)) {  // some may be connected to it
    for (const ProcessInfo& process : directory_.processes) {
      send_to(this, process.supervisor, ProcessGone{failure.process});
    }
  }
  options_.seats.warn(problem + "; the others keep its seats");
  successor_.reset();
  introduced_.reset();
  connected_ = false;
  start_next();
}

}  // namespace maestro
