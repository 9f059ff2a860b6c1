// SPDX-License-Identifier: Apache-2.0
// A process's part in moves of seats (SV-8): replicas of repeatable sections that begin anew, also in seats of a lost
// process.
#include <algorithm>

#include "actors/control/control_place.hpp"
#include "actors/plan/planning_options.hpp"
#include "actors/plan/seats.hpp"
#include "actors/process/process_state.hpp"

namespace maestro {

bool ProcessRun::State::seats_may_move() const {
  // The phases of a synchronous plan are of the lanes that were there when the step began.
  const bool recovers = plan.train.recover == RecoverChoice::restart && plan.train.max_recoveries > 0;
  return several() && recovers && !scheduling_policy(plan)->synchronous() &&
         why_seats_stay(plan.graph, plan.places).empty();
}

SeatMoves ProcessRun::State::seat_moves() {
  SeatMoves moves;
  const auto most = static_cast<std::size_t>(plan.train.max_recoveries);
  if (seats_may_move()) moves.most = most - std::min<std::size_t>(most, losses);
  moves.epoch = rendezvous_info.epoch;
  moves.warn = [this](const std::string& line) {
    console.finish();
    console.warning(line);
  };
  moves.begun = [warn = moves.warn, this](const std::string& line) {
    warn(line + " (recovery " + std::to_string(++losses) + " of " + std::to_string(plan.train.max_recoveries) + ")");
  };
  moves.bury = [this](const ProcessInfo& lost) { bury(lost); };
  moves.take = [this](const MoveSeats& order) { return take_seats(order); };
  if (is_root() && successors_may_come()) moves.start = [this](ProcessId lost) { start_again(lost); };
  moves.seated = [this](ProcessId successor) {
    launcher->rely_on(successor);
    job_start->started_again();
  };
  return moves;
}

bool ProcessRun::State::successors_may_come() const {
  return started_by_rank_0() && seats_may_move();
}

void ProcessRun::State::start_again(ProcessId lost) {
  const std::lock_guard lock(spawned_mutex);
  if (seats_closed) return;
  if (starting.joinable()) starting.join();  // it has ended: a single process starts at a time
  starting = std::thread([this, lost, to = supervisor] {
    try {
      job_start->start_again(*launcher, job_text(), rendezvous_info, lost);
    } catch (const std::exception& problem) {
      send_from_outside(to, SuccessorFailed{lost, problem.what()});
    }
  });
}

void ProcessRun::State::close_seats() {
  {
    const std::lock_guard lock(spawned_mutex);
    seats_closed = true;
  }
  if (!starting.joinable()) return;
  job_start->stop_starting();
  launcher->kill_forgiven();
  starting.join();
}

std::vector<OwnActor> ProcessRun::State::take_seats(const MoveSeats& order) {
  const std::lock_guard lock(spawned_mutex);
  if (seats_closed) return {};
  for (const Seat& seat : order.moved) {
    std::erase_if(seats, [&](const Seat& own) { return own.section == seat.section && own.replica == seat.replica; });
    if (seat.process == process) seats.push_back(seat);
  }
  const std::vector<bool> repeatable = plan.graph.repeatable();
  std::vector<OwnActor> taken;
  for (const Seat& seat : seats) {
    if (!repeatable[seat.section.value()]) continue;
    const auto has_seat = [&](const BuiltReplica& built) {
      return built.place.section == seat.section && built.place.replica == seat.replica;
    };
    auto built = std::ranges::find_if(replicas, has_seat);
    if (built == replicas.end()) {
      built = std::ranges::find(replicas, seat.section, [](const BuiltReplica& one) { return one.place.section; });
    }
    taken.push_back(spawn_replica(*built, seat, order.epoch));
  }
  return taken;
}

void ProcessRun::State::bury(const ProcessInfo& lost) {
  network->abandon(lost.process);
  if (launcher != nullptr) launcher->forgive(lost.process);
  const std::uint32_t here = place.hosts.empty() ? 0 : place.hosts.at(process.value());
  const std::uint32_t there = place.hosts.empty() ? 0 : place.hosts.at(lost.process.value());
  if (here != there) return;
  ProcessHandle(lost.identity).kill();  // a stopped process would stay for ever
  if (lost.identity.pid_namespace == own_identity().pid_namespace) remove_sockets_of(lost.identity.pid);
}

}  // namespace maestro
