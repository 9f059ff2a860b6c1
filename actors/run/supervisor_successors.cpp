// SPDX-License-Identifier: Apache-2.0
// Successors of lost processes (SV-9).
#include <algorithm>

#include "actors/plan/seats.hpp"
#include "actors/run/supervisor.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

bool Supervisor::hold_seats_of(const ProcessInfo& lost) {
  const ProcessId gone = lost.process;
  const bool others_start = successor_ || !to_start_.empty();  // their seats could not move without these
  const bool starts = options_.seats.start && !joins_later(gone);
  if (!starts || others_start || !membership_.leave(gone)) return false;
  note_move(lost, "starting it again");
  held_.insert(gone);
  std::erase_if(directory_.processes, [&](const ProcessInfo& process) { return process.process == gone; });
  for (const ProcessInfo& process : directory_.processes) send_to(this, process.supervisor, ProcessGone{gone, true});
  to_start_.push_back(gone);
  start_next();
  return true;
}

void Supervisor::process_gone(const ProcessGone& lost) {
  (void)membership_.leave(lost.process);             // on rank 0 it has
  forget(lost.process, !joins_later(lost.process));  // a process that could not join ends by itself, with its reason
  if (lost.awaited) held_.insert(lost.process);
}

void Supervisor::start_next() {
  if (successor_ || to_start_.empty() || !options_.seats.start) return;
  successor_ = Successor{to_start_.front(), {}, {}, false};
  to_start_.pop_front();
  options_.seats.start(successor_->process);
}

void Supervisor::successor_introduced(const ProcessInfo& info) {
  successor_->info = info;
  successor_->info->replicas.clear();  // they begin anew when its seats move
  watch(info);
  PeerList present;
  present.late = true;
  for (const ProcessInfo& peer : directory_.processes) {
    present.all.push_back({peer.process, peer.actors_host, peer.actors_port});
  }
  send_to(this, info.supervisor, present);
}

void Supervisor::miss_absent(const PeerList& present) {
  for (std::uint32_t process = 0; process < membership_.most_processes(); ++process) {
    const auto there = std::ranges::find(present.all, ProcessId(process), &PeerAddress::process) != present.all.end();
    if (there) (void)membership_.come(ProcessId(process));
    if (!there && ProcessId(process) != options_.process) membership_.miss(ProcessId(process));
  }
}

void Supervisor::seat_successor() {
  if (!successor_ || !successor_->connected || change_.under_way()) return;
  if (stops() && !held_.contains(successor_->process)) return;  // SV-15
  MoveSeats order;
  move_reason_ = "recovered: process " + std::to_string(successor_->process.value()) + " is there again";
  if (successor_->section.empty()) {
    std::ranges::copy_if(home_, std::back_inserter(order.moved),
                         [&](const Seat& seat) { return seat.process == successor_->process; });
  } else {
    const auto shared = share_seats(*options_.graph, seats_of(directory_), successor_->process, successor_->section);
    if (!shared) return successor_failed({successor_->process, shared.error().message});
    order.moved = *shared;
    move_reason_ = text_of(order.moved, *options_.graph);
  }
  Directory directory = directory_;
  directory.processes.push_back(*successor_->info);
  begin_move(order, std::move(directory));
}

void Supervisor::move_ended() {
  const auto is_here = [this](const ProcessInfo& process) { return is_successor(process.process); };
  if (std::ranges::any_of(directory_.processes, is_here)) {
    options_.seats.seated(successor_->process);
    successor_.reset();
  }
  dismiss_leaver();
  seat_successor();  // which waited for the end of this move
  start_next();
}

void Supervisor::leave_out_successor() {
  if (!successor_) return;
  const auto takes_part =
      std::ranges::find(directory_.processes, successor_->process, &ProcessInfo::process) != directory_.processes.end();
  if (takes_part || !membership_.leave(successor_->process)) return;
  if (successor_->info) send_to(this, successor_->info->supervisor, Finish{});  // its summary does not count
}

void Supervisor::successor_failed(const SuccessorFailed& failure) {
  if (!is_successor(failure.process) || membership_.phase() != RunPhase::running) return;
  const bool again = successor_->section.empty();
  const std::string problem = "process " + std::to_string(failure.process.value()) +
                              (again ? " did not start again: " : " has not joined: ") + failure.problem;
  if (held_.contains(failure.process)) return fail({problem}, true, false, true);
  if (membership_.leave(failure.process)) {  // some may be connected to it
    for (const ProcessInfo& process : directory_.processes) {
      send_to(this, process.supervisor, ProcessGone{failure.process});
    }
  }
  options_.seats.warn(problem + (again ? "; the others keep its seats" : ""));
  successor_.reset();
  start_next();
}

}  // namespace maestro
