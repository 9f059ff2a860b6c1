// SPDX-License-Identifier: Apache-2.0
// Moves of seats (SV-8).
#include <algorithm>

#include "actors/plan/seats.hpp"
#include "actors/run/supervisor.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

bool Supervisor::move_seats_of(const ProcessInfo& lost) {
  if (!membership_.is_root() || moves_ >= options_.seats.most || change_.under_way() || !held_.empty()) return false;
  const Result<std::vector<Seat>> moved = adopt_seats(*options_.graph, seats_of(directory_), lost.process);
  if (!moved) return moved.error().code == ErrorCode::not_found && hold_seats_of(lost);
  if (!membership_.leave(lost.process)) return false;
  move_reason_ = moved->empty() ? "it had no section" : text_of(*moved, *options_.graph);
  note_move(lost, move_reason_);
  Directory remaining = directory_;
  std::erase_if(remaining.processes, [&](const ProcessInfo& process) { return process.process == lost.process; });
  if (!joins_later(lost.process)) to_start_.push_back(lost.process);
  begin_move({{}, {lost.process}, {}, *moved}, std::move(remaining));
  start_next();
  return true;
}

void Supervisor::note_move(const ProcessInfo& lost, const std::string& what_follows) {
  ++moves_;
  loss_.peer = process_label(lost, *options_.graph);
  loss_.step = std::to_string(options_.current_step->load(std::memory_order_relaxed));
  const std::string cause = loss_text(lost.process);
  options_.seats.begun(cause + "; " + what_follows);
  send_to(this, local_.coordinator, SeatsLost{cause});
}

void Supervisor::begin_move(const MoveSeats& moves, Directory directory) {
  MoveSeats order = moves;
  order.epoch = Epoch(options_.seats.epoch.value() + ++generation_);
  change_.begin(order.epoch, std::move(directory));
  for (const ProcessInfo& process : change_.directory().processes) send_to(this, process.supervisor, order);
  delayed_send(this, std::max<std::chrono::milliseconds>(2 * options_.peer_timeout, std::chrono::seconds(5)),
               MoveTimeout{order.epoch});
}

void Supervisor::forget(ProcessId process, bool lost) {
  const auto found = std::ranges::find_if(watched_, [&](const auto& entry) { return entry.second.process == process; });
  if (found == watched_.end()) return;
  if (lost) {
    options_.seats.bury(found->second, membership_.on_this_host(process));
  } else {
    options_.seats.left(process);
  }
  peers_.remove(process);
  transported_.erase(process);
  watched_.erase(found);
}

void Supervisor::move_seats(const MoveSeats& order) {
  for (const ProcessId lost : order.lost) {
    (void)membership_.leave(lost);  // on rank 0 it has
    forget(lost);
  }
  for (const ProcessId leaver : order.left) {
    if (leaver == options_.process) continue;
    (void)membership_.leave(leaver);
    forget(leaver, false);
  }
  const std::vector<bool> repeatable = options_.graph->repeatable();
  taken_ = {order.epoch, options_.process, {}, {}};
  answers_due_ = 0;
  const auto failed = [this](const caf::error& problem) { cannot_move(home_system().render(problem)); };
  for (const ReplicaAddress& replica : local_.info.replicas) {
    if (repeatable[replica.section.value()]) {
      retired_.insert(replica.actor.address());
      send_to(this, replica.actor, Retire{});
      continue;
    }
    ++answers_due_;
    request(replica.actor, caf::infinite, RenewInputs{order.epoch})
        .then(
            [this](const InputsRenewed& renewed) {
              std::ranges::copy(renewed.arrivals, std::back_inserter(taken_.arrivals));
              replica_moved(renewed.address);
            },
            failed);
  }
  for (const OwnActor& own : take_seats(order)) {
    own_[own.actor.address()] = own.label;
    monitor(own.actor);
    ++answers_due_;
    request(own.actor, caf::infinite, AddressRequest{})
        .then([this](const ReplicaAddress& address) { replica_moved(address); }, failed);
  }
  if (answers_due_ == 0) send_to(this, root_, taken_);
}

std::vector<OwnActor> Supervisor::take_seats(const MoveSeats& order) {
  try {
    return options_.seats.take(order);
  } catch (const std::exception&) {
    cannot_move(describe(std::current_exception()));
    return {};
  }
}

void Supervisor::cannot_move(const std::string& problem) {
  fail({"process " + std::to_string(options_.process.value()) + " cannot take the seats of a lost process: " + problem},
       prints(), false, true);
}

void Supervisor::replica_moved(const ReplicaAddress& address) {
  taken_.replicas.push_back(address);
  if (--answers_due_ == 0) send_to(this, root_, taken_);
}

void Supervisor::seats_taken(const SeatsTaken& answer) {
  if (!change_.taken(answer)) return;
  for (const ProcessInfo& process : change_.directory().processes) {
    send_to(this, process.supervisor, SeatsMoved{change_.epoch(), change_.directory()});
  }
}

void Supervisor::seats_moved(const SeatsMoved& moved) {
  (void)membership_.wired();  // of a successor
  directory_ = moved.directory;
  for (const ProcessInfo& peer : directory_.processes) {
    held_.erase(peer.process);
    if (peer.process == options_.process) {
      local_.info.replicas = peer.replicas;
    } else {
      watch(peer);  // with its new label
    }
  }
  try {
    connect_memory();
  } catch (const JobError& problem) {
    return cannot_move(problem.what());
  }
  const std::vector<bool> repeatable = options_.graph->repeatable();
  const caf::message begins = caf::make_message(directory_);
  const caf::message goes_on = caf::make_message(moved);
  for (const ReplicaAddress& replica : local_.info.replicas) {
    send_to(this, replica.actor, repeatable[replica.section.value()] ? begins : goes_on);
  }
  send_to(this, root_, SeatsReady{moved.epoch, options_.process});
}

void Supervisor::seats_ready(const SeatsReady& answer) {
  if (!change_.ready(answer)) return;
  send_to(this, local_.coordinator, BeginAgain{move_reason_, directory_, change_.arrivals()});
  move_ended();
}

void Supervisor::move_timed_out(const MoveTimeout& move) {
  if (!change_.under_way() || change_.epoch() != move.epoch) return;
  fail({"seats have not moved in time: " + move_reason_}, true, false, true);
}

}  // namespace maestro
