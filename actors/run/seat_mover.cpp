// SPDX-License-Identifier: Apache-2.0
#include "actors/run/seat_mover.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "actors/run/loss_report.hpp"

namespace maestro {

namespace {

SeatAnswer refused(const std::string& why) {
  return {{}, {}, why};
}

}  // namespace

bool SeatMover::move_seats_of(const ProcessInfo& lost) {
  const bool can_move = run_.membership.is_root() && moves_ < run_.options.seats.most;
  if (!can_move || change_.under_way() || !run_.awaited.empty()) return false;
  const Result<std::vector<Seat>> moved = adopt_seats(*run_.options.graph, seats_of(run_.directory), lost.process);
  if (!moved) return moved.error().code == ErrorCode::not_found && wait_for_replacement_of(lost);
  if (!run_.membership.leave(lost.process)) return false;
  reason_ = moved->empty() ? "it had no section" : text_of(*moved, *run_.options.graph);
  note_loss(lost, reason_);
  if (!run_.joins_later(lost.process)) queue_.add(lost.process);
  move({{}, {lost.process}, {}, *moved}, without(lost.process));
  start_next();
  return true;
}

bool SeatMover::wait_for_replacement_of(const ProcessInfo& lost) {
  const ProcessId gone = lost.process;
  const bool starts = run_.options.seats.starts && !run_.joins_later(gone);
  // While others start, their seats could not move without these.
  if (!starts || !queue_.empty() || !run_.membership.leave(gone)) return false;
  note_loss(lost, "starting it again");
  run_.awaited.insert(gone);
  run_.directory = without(gone);
  report_gone({gone, true});
  queue_.add(gone);
  start_next();
  return true;
}

void SeatMover::note_loss(const ProcessInfo& lost, const std::string& what_follows) {
  ++moves_;
  const std::string cause = LossReport(run_, lost).text();
  run_.options.seats.host->begun(cause + "; " + what_follows);
  send_to(run_.self, run_.local.coordinator, SeatsLost{cause});
}

void SeatMover::move(const MoveSeats& moves, Directory directory) {
  const auto limit = std::max<std::chrono::milliseconds>(2 * run_.options.peer_timeout, std::chrono::seconds(5));
  MoveSeats order = moves;
  order.epoch = Epoch(run_.options.seats.epoch.value() + ++generation_);
  change_.begin(order.epoch, std::move(directory));
  for (const ProcessInfo& process : change_.directory().processes) send_to(run_.self, process.supervisor, order);
  run_.self->delayed_send(run_.self, limit, MoveTimeout{order.epoch});
}

Directory SeatMover::without(ProcessId process) const {
  Directory remaining = run_.directory;
  std::erase_if(remaining.processes, [&](const ProcessInfo& other) { return other.process == process; });
  return remaining;
}

void SeatMover::report_gone(const ProcessGone& gone) {
  for (const ProcessInfo& process : run_.directory.processes) send_to(run_.self, process.supervisor, gone);
}

void SeatMover::taken(const SeatsTaken& answer) {
  if (!change_.taken(answer)) return;
  for (const ProcessInfo& process : change_.directory().processes) {
    send_to(run_.self, process.supervisor, SeatsMoved{change_.epoch(), change_.directory()});
  }
}

void SeatMover::ready(const SeatsReady& answer) {
  if (!change_.ready(answer)) return;
  send_to(run_.self, run_.local.coordinator, BeginAgain{reason_, run_.directory, change_.arrivals()});
  const auto is_here = [this](const ProcessInfo& process) { return is_replacement(process.process); };
  if (std::ranges::any_of(run_.directory.processes, is_here)) {
    run_.options.seats.host->seated(queue_.current()->process);
    queue_.end();
  }
  if (leaver_) send_to(run_.self, std::exchange(leaver_, nullptr), Dismissed{});
  seat_replacement();  // which waited for the end of this move
  start_next();
}

void SeatMover::timed_out(const MoveTimeout& move) {
  if (!change_.under_way() || change_.epoch() != move.epoch) return;
  run_.fail("seats have not moved in time: " + reason_, true, true);
}

void SeatMover::start_next() {
  if (!run_.options.seats.starts) return;
  if (const auto process = queue_.next()) run_.options.seats.host->start_again(*process);
}

void SeatMover::introduced(const ProcessInfo& info) {
  std::optional<ProcessInfo>& known = queue_.current()->info;
  known = info;
  known->replicas.clear();  // they begin anew when its seats move
  PeerList present;
  present.late = true;
  for (const ProcessInfo& peer : run_.directory.processes) {
    present.all.push_back({peer.process, peer.actors_host, peer.actors_port});
  }
  send_to(run_.self, info.supervisor, present);
}

void SeatMover::connected() {
  queue_.current()->connected = true;
  seat_replacement();
}

void SeatMover::seat_replacement() {
  const std::optional<Replacement>& comes = queue_.current();
  if (!comes || !comes->connected || change_.under_way()) return;
  if (run_.stops() && !run_.awaited.contains(comes->process)) return;  // SV-15
  MoveSeats order;
  reason_ = "recovered: " + comes->name() + " is there again";
  if (comes->starts_again()) {
    std::ranges::copy_if(home_, std::back_inserter(order.moved),
                         [&](const Seat& seat) { return seat.process == comes->process; });
  } else {
    const auto shared = share_seats(*run_.options.graph, seats_of(run_.directory), comes->process, comes->section);
    if (!shared) return failed({comes->process, shared.error().message});
    order.moved = *shared;
    reason_ = text_of(order.moved, *run_.options.graph);
  }
  Directory directory = run_.directory;
  directory.processes.push_back(*comes->info);
  move(order, std::move(directory));
}

void SeatMover::leave_out_replacement() {
  const std::optional<Replacement>& comes = queue_.current();
  if (!comes) return;
  const auto& members = run_.directory.processes;
  const bool takes_part = std::ranges::find(members, comes->process, &ProcessInfo::process) != members.end();
  if (takes_part || !run_.membership.leave(comes->process)) return;
  if (comes->info) send_to(run_.self, comes->info->supervisor, Finish{});  // its summary does not count
}

void SeatMover::failed(const SuccessorFailed& failure) {
  if (!is_replacement(failure.process) || run_.membership.phase() != RunPhase::running) return;
  const bool again = queue_.current()->starts_again();
  const std::string problem =
      queue_.current()->name() + (again ? " did not start again: " : " has not joined: ") + failure.problem;
  if (run_.awaited.contains(failure.process)) return run_.fail(problem, true, true);
  if (run_.membership.leave(failure.process)) report_gone({failure.process});  // some may be connected to it
  run_.options.seats.host->warn(problem + (again ? "; the others keep its seats" : ""));
  queue_.end();
  start_next();
}

std::string SeatMover::why_nothing_moves() const {
  const RunPhase phase = run_.membership.phase();
  if (!run_.options.seats.may_join) {
    return "no section of the job has replicas = {least, most} with least below most, so no process can join or leave";
  }
  if (phase < RunPhase::running) return "the run has not begun yet";
  if (phase > RunPhase::running || run_.stops()) return "the run is ending";
  if (!queue_.empty()) return "another process is joining or starting again; try again";
  if (change_.under_way() || !run_.awaited.empty()) return "replicas are moving between processes; try again";
  return {};
}

SeatAnswer SeatMover::let_join(const JoinWanted& wanted) {
  if (const std::string why = why_nothing_moves(); !why.empty()) return refused(why);
  const RunMembership& membership = run_.membership;
  ProcessId joining(1);
  while (joining.value() < membership.most_processes() && !membership.has_left(joining)) {
    joining = ProcessId(joining.value() + 1);
  }
  const auto seats = share_seats(*run_.options.graph, seats_of(run_.directory), joining, wanted.section);
  if (!seats) return refused(seats.error().message);
  if (joining.value() >= membership.most_processes()) {
    return refused("the run has as many processes as it can; `maestro leave` ends one that has no replica");
  }
  queue_.begin(joining, wanted.section);
  return {joining, text_of(*seats, *run_.options.graph), {}};
}

SeatAnswer SeatMover::let_leave(const LeaveWanted& wanted) {
  if (const std::string why = why_nothing_moves(); !why.empty()) return refused(why);
  const SectionGraph& graph = *run_.options.graph;
  const std::string name = "process " + std::to_string(wanted.process.value());
  if (wanted.process == ProcessId(0)) return refused(name + " coordinates the run; `maestro stop` ends it");
  const auto& members = run_.directory.processes;
  const auto leaver = std::ranges::find(members, wanted.process, &ProcessInfo::process);
  if (leaver == members.end()) return refused("there is no " + name + "; `maestro status` shows them");
  const auto moved = adopt_seats(graph, seats_of(run_.directory), wanted.process);
  if (!moved) return refused(name + " cannot leave: " + moved.error().message);
  if (!run_.membership.leave(wanted.process)) return refused("the run is ending");
  leaver_ = leaver->supervisor;
  const std::string follows = moved->empty() ? "it had no section" : text_of(*moved, graph);
  reason_ = process_label(*leaver, graph) + " leaves; " + follows;
  const Epoch next(run_.options.seats.epoch.value() + generation_ + 1);
  send_to(run_.self, leaver_, MoveSeats{next, {}, {wanted.process}, {}});
  move({{}, {}, {wanted.process}, *moved}, without(wanted.process));
  return {wanted.process, follows, {}};
}

void SeatMover::clear() {
  change_ = SeatChange();
  queue_.end();
  leaver_ = nullptr;
}

}  // namespace maestro
