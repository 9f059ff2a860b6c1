// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/placement_mover.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "actors/run/supervisor/loss_report.hpp"

namespace maestro {

namespace {

PlacementAnswer refused(const std::string& why) {
  return {{}, {}, why};
}

}  // namespace

bool PlacementMover::move_placements_of(const ProcessInfo& lost) {
  const bool can_move = run_.membership.is_root() && moves_ < run_.options.placements.most;
  if (!can_move || change_.under_way() || !run_.awaited.empty()) return false;
  const Result<std::vector<Placement>> moved =
      adopt_placements(*run_.options.graph, placements_of(run_.directory), lost.process);
  if (!moved) return moved.error().code == ErrorCode::not_found && wait_for_replacement_of(lost);
  if (!run_.membership.leave(lost.process)) return false;
  reason_ = moved->empty() ? "it had no section" : text_of(*moved, *run_.options.graph);
  note_loss(lost, reason_);
  if (!run_.joins_later(lost.process)) queue_.add(lost.process);
  move({{}, {lost.process}, {}, *moved}, without(lost.process));
  start_next();
  return true;
}

bool PlacementMover::wait_for_replacement_of(const ProcessInfo& lost) {
  const ProcessId gone = lost.process;
  const bool starts = run_.options.placements.starts && !run_.joins_later(gone);
  // The placements of replacement processes that still start could not move without the lost ones.
  if (!starts || !queue_.empty() || !run_.membership.leave(gone)) return false;
  note_loss(lost, "starting it again");
  run_.awaited.insert(gone);
  run_.directory = without(gone);
  report_gone({gone, true});
  queue_.add(gone);
  start_next();
  return true;
}

void PlacementMover::note_loss(const ProcessInfo& lost, const std::string& what_follows) {
  ++moves_;
  const std::string cause = LossReport(run_, lost).text();
  run_.options.placements.host->begun(cause + "; " + what_follows);
  send_to(run_.self, run_.local.coordinator, PlacementsLost{cause});
}

void PlacementMover::move(const MovePlacements& moves, Directory directory) {
  const auto limit = std::max<std::chrono::milliseconds>(2 * run_.options.peer_timeout, std::chrono::seconds(5));
  MovePlacements order = moves;
  order.epoch = Epoch(run_.options.placements.epoch.value() + ++generation_);
  change_.begin(order.epoch, std::move(directory));
  for (const ProcessInfo& process : change_.directory().processes) send_to(run_.self, process.supervisor, order);
  run_.self->delayed_send(run_.self, limit, MoveTimeout{order.epoch});
}

Directory PlacementMover::without(ProcessId process) const {
  Directory remaining = run_.directory;
  std::erase_if(remaining.processes, [&](const ProcessInfo& other) { return other.process == process; });
  return remaining;
}

void PlacementMover::report_gone(const ProcessGone& gone) {
  for (const ProcessInfo& process : run_.directory.processes) send_to(run_.self, process.supervisor, gone);
}

void PlacementMover::taken(const PlacementsTaken& answer) {
  if (!change_.taken(answer)) return;
  for (const ProcessInfo& process : change_.directory().processes) {
    send_to(run_.self, process.supervisor, PlacementsMoved{change_.epoch(), change_.directory()});
  }
}

void PlacementMover::ready(const PlacementsReady& answer) {
  if (!change_.ready(answer)) return;
  send_to(run_.self, run_.local.coordinator, BeginAgain{reason_, run_.directory, change_.arrivals()});
  const auto is_here = [this](const ProcessInfo& process) { return is_replacement(process.process); };
  if (std::ranges::any_of(run_.directory.processes, is_here)) {
    run_.options.placements.host->placed(queue_.current()->process);
    queue_.end();
  }
  if (leaver_) send_to(run_.self, std::exchange(leaver_, nullptr), Dismissed{});
  place_replacement();  // it waited for the end of this move
  start_next();
}

void PlacementMover::timed_out(const MoveTimeout& move) {
  if (!change_.under_way() || change_.epoch() != move.epoch) return;
  run_.fail("placements have not moved in time: " + reason_, true, true);
}

void PlacementMover::start_next() {
  if (!run_.options.placements.starts) return;
  if (const auto process = queue_.next()) run_.options.placements.host->start_again(*process);
}

void PlacementMover::introduced(const ProcessInfo& info) {
  std::optional<ProcessInfo>& known = queue_.current()->info;
  known = info;
  known->replicas.clear();  // replicas begin anew when the placements move
  PeerList present;
  present.late = true;
  for (const ProcessInfo& peer : run_.directory.processes) {
    present.all.push_back({peer.process, peer.actors_host, peer.actors_port});
  }
  send_to(run_.self, info.supervisor, present);
}

void PlacementMover::connected() {
  queue_.current()->connected = true;
  place_replacement();
}

void PlacementMover::place_replacement() {
  const std::optional<Replacement>& comes = queue_.current();
  if (!comes || !comes->connected || change_.under_way()) return;
  if (run_.stops() && !run_.awaited.contains(comes->process)) return;  // SV-15
  MovePlacements order;
  reason_ = "recovered: " + comes->name() + " has rejoined";
  if (comes->starts_again()) {
    std::ranges::copy_if(home_, std::back_inserter(order.moved),
                         [&](const Placement& placement) { return placement.process == comes->process; });
  } else {
    const auto shared =
        share_placements(*run_.options.graph, placements_of(run_.directory), comes->process, comes->section);
    if (!shared) return failed({comes->process, shared.error().message});
    order.moved = *shared;
    reason_ = text_of(order.moved, *run_.options.graph);
  }
  Directory directory = run_.directory;
  directory.processes.push_back(*comes->info);
  move(order, std::move(directory));
}

void PlacementMover::leave_out_replacement() {
  const std::optional<Replacement>& comes = queue_.current();
  if (!comes) return;
  const auto& members = run_.directory.processes;
  const bool takes_part = std::ranges::find(members, comes->process, &ProcessInfo::process) != members.end();
  if (takes_part || !run_.membership.leave(comes->process)) return;
  if (comes->info) send_to(run_.self, comes->info->supervisor, Finish{});  // its summary does not count
}

void PlacementMover::failed(const ReplacementFailed& failure) {
  if (!is_replacement(failure.process) || run_.membership.phase() != RunPhase::running) return;
  const bool again = queue_.current()->starts_again();
  const std::string problem =
      queue_.current()->name() + (again ? " did not start again: " : " has not joined: ") + failure.problem;
  if (run_.awaited.contains(failure.process)) return run_.fail(problem, true, true);
  if (run_.membership.leave(failure.process)) report_gone({failure.process});  // other processes may have connected
  run_.options.placements.host->warn(problem + (again ? "; other processes keep its placements" : ""));
  queue_.end();
  start_next();
}

std::string PlacementMover::why_nothing_moves() const {
  const RunPhase phase = run_.membership.phase();
  if (!run_.options.placements.may_join) {
    return "no section of the job has replicas = {least, most} with least below most, so no process can join or leave";
  }
  if (phase < RunPhase::running) return "the run has not begun yet";
  if (phase > RunPhase::running || run_.stops()) return "the run is ending";
  if (!queue_.empty()) return "another process is joining or starting again; try again";
  if (change_.under_way() || !run_.awaited.empty()) return "replicas are moving between processes; try again";
  return {};
}

PlacementAnswer PlacementMover::let_join(const JoinWanted& wanted) {
  if (const std::string why = why_nothing_moves(); !why.empty()) return refused(why);
  const RunMembership& membership = run_.membership;
  ProcessId joining(1);
  while (joining.value() < membership.most_processes() && !membership.has_left(joining)) {
    joining = ProcessId(joining.value() + 1);
  }
  const auto placements = share_placements(*run_.options.graph, placements_of(run_.directory), joining, wanted.section);
  if (!placements) return refused(placements.error().message);
  if (joining.value() >= membership.most_processes()) {
    return refused("the run has its maximum number of processes; `maestro leave` ends a process without replicas");
  }
  queue_.begin(joining, wanted.section);
  return {joining, text_of(*placements, *run_.options.graph), {}};
}

PlacementAnswer PlacementMover::let_leave(const LeaveWanted& wanted) {
  if (const std::string why = why_nothing_moves(); !why.empty()) return refused(why);
  const SectionGraph& graph = *run_.options.graph;
  const std::string name = "process " + std::to_string(wanted.process.value());
  if (wanted.process == ProcessId(0)) return refused(name + " coordinates the run; `maestro stop` ends it");
  const auto& members = run_.directory.processes;
  const auto leaver = std::ranges::find(members, wanted.process, &ProcessInfo::process);
  if (leaver == members.end()) return refused(name + " is not part of the run; `maestro status` lists its processes");
  const auto moved = adopt_placements(graph, placements_of(run_.directory), wanted.process);
  if (!moved) return refused(name + " cannot leave: " + moved.error().message);
  if (!run_.membership.leave(wanted.process)) return refused("the run is ending");
  leaver_ = leaver->supervisor;
  const std::string follows = moved->empty() ? "it had no section" : text_of(*moved, graph);
  reason_ = process_label(*leaver, graph) + " leaves; " + follows;
  const Epoch next(run_.options.placements.epoch.value() + generation_ + 1);
  send_to(run_.self, leaver_, MovePlacements{next, {}, {wanted.process}, {}});
  move({{}, {}, {wanted.process}, *moved}, without(wanted.process));
  return {wanted.process, follows, {}};
}

void PlacementMover::clear() {
  change_ = PlacementChange();
  queue_.end();
  leaver_ = nullptr;
}

}  // namespace maestro
