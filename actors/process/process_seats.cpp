// SPDX-License-Identifier: Apache-2.0
// A process's part in moves of seats (SV-8): replicas of repeatable sections that begin anew, also in seats of a lost
// process.
#include <algorithm>

#include "actors/control/control_place.hpp"
#include "actors/plan/planning_options.hpp"
#include "actors/plan/seats.hpp"
#include "actors/process/process_state.hpp"
#include "runtime/core/usable_cores.hpp"

namespace maestro {

namespace {
constexpr std::chrono::seconds question_limit(5);
}  // namespace

bool ProcessRun::State::recovers_in_place() const {
  return plan.train.recover == RecoverChoice::restart && plan.train.max_recoveries > 0 && seats_may_move();
}

bool ProcessRun::State::seats_may_move() const {
  const bool wanted = plan.train.recover == RecoverChoice::restart || joining() > 0;
  // The phases of a synchronous plan are of the lanes that were there when the step began.
  return several() && wanted && !scheduling_policy(plan)->synchronous() &&
         why_seats_stay(plan.graph, plan.places).empty();
}

SeatMoves ProcessRun::State::seat_moves() {
  SeatMoves moves;
  const auto most = static_cast<std::size_t>(plan.train.max_recoveries);
  if (recovers_in_place()) moves.most = most - std::min<std::size_t>(most, losses);
  moves.may_join = joining() > 0;
  moves.by_hand = by_hand();
  for (const PlannedSection& section : plan.sections) {
    if (section.config.elastic && section.stage.first() && is_root()) moves.elastic.push_back(section.config.name);
  }
  moves.note = [this](const std::string& line) { console.note(line); };
  moves.start_new = [this](ProcessId process_number, const std::string& section) {
    start_new(process_number, section);
  };
  moves.epoch = rendezvous_info.epoch;
  moves.warn = [this](const std::string& line) {
    console.finish();
    console.warning(line);
  };
  moves.begun = [warn = moves.warn, this](const std::string& line) {
    warn(line + " (recovery " + std::to_string(++losses) + " of " + std::to_string(plan.train.max_recoveries) + ")");
  };
  moves.bury = [this](const ProcessInfo& lost, bool here) { bury(lost, here); };
  moves.left = [this](ProcessId leaver) {
    network->abandon(leaver);
    launcher->forgive(leaver);
  };
  moves.take = [this](const MoveSeats& order) { return take_seats(order); };
  if (is_root() && successors_may_come()) moves.start = [this](ProcessId lost) { start_again(lost); };
  moves.seated = [this](ProcessId successor) {
    launcher->rely_on(successor);
    job_start->started_again();
  };
  return moves;
}

bool ProcessRun::State::successors_may_come() const {
  return started_by_rank_0() && recovers_in_place();
}

/// Runs `call` on a thread of its own; a single process starts at a time.
void ProcessRun::State::await_start(ProcessId of_process, std::function<void()> call) {
  starting = std::thread([of_process, call = std::move(call), to = supervisor] {
    try {
      call();
    } catch (const std::exception& problem) {
      send_from_outside(to, SuccessorFailed{of_process, problem.what()});
    }
  });
}

void ProcessRun::State::start_again(ProcessId lost) {
  const std::lock_guard lock(spawned_mutex);
  if (seats_closed) return;
  if (starting.joinable()) starting.join();  // it has ended
  await_start(lost, [this, lost] { job_start->start_again(*launcher, job_text(), rendezvous_info, lost); });
}

void ProcessRun::State::start_new(ProcessId joining_process, const std::string& section) {
  const std::lock_guard lock(spawned_mutex);
  if (seats_closed) return;
  if (starting.joinable()) starting.join();  // it has ended
  launcher->forgive(joining_process);        // the run relies on it from its seat on
  await_start(joining_process, [this, joining_process, section] {
    job_start->start_new(*launcher, job_text(), rendezvous_info, joining_process, section);
  });
}

void ProcessRun::State::check_elastic() const {
  for (const PlannedSection& section : plan.sections) {
    const std::string key = section.config.name + ".replicas.elastic = \"auto\": rank 0 starts and ends processes";
    if (!section.config.elastic) continue;
    if (!several()) throw JobError(key + " of a run with several; give --processes 2 or more");
    if (started_by_rank_0()) continue;
    throw JobError(key + ", and here " + std::string(name_of(place.launcher)) +
                   " starts them; leave elastic out, and use `maestro join`");
  }
}

SeatAnswer ProcessRun::State::query_supervisor(const caf::message& wanted) {
  if (!several())
    throw JobError("the run has a single process; start it with --processes 2 or more for others to join");
  caf::scoped_actor self(actors->system());
  SeatAnswer answer;
  self->request(supervisor, question_limit, wanted)
      .receive([&](const SeatAnswer& given) { answer = given; },
               [](const caf::error&) { throw JobError("the run does not answer", ErrorCode::unavailable); });
  if (!answer.refusal.empty()) throw JobError(answer.refusal);
  return answer;
}

JoinTerms ProcessRun::State::let_join(const SeatRequest& request) {
  const ProcessId joining = query_supervisor(caf::make_message(JoinWanted{request.section})).process;
  try {
    const std::lock_guard lock(spawned_mutex);
    if (seats_closed) throw JobError("the run is ending");
    (void)joining_places(request.section, joining, request.devices);  // refuses devices that no host has
    if (starting.joinable()) starting.join();                         // it has ended
    JoinTerms terms = job_start->open_door(job_text(), rendezvous_info, joining, request);
    await_start(joining, [this] { job_start->await_joining(job_text()); });
    return terms;
  } catch (const JobError& problem) {
    send_from_outside(supervisor, SuccessorFailed{joining, problem.what()});
    throw;
  }
}

std::string ProcessRun::State::let_leave(ProcessId leaver) {
  return query_supervisor(caf::make_message(LeaveWanted{leaver})).text;
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
  if (by_hand() && seats.empty() && !order.moved.empty()) {
    console.note("joined the run: " + text_of(order.moved, plan.graph));
  }
  follow_moves(seats, order.moved, process);
  const std::vector<bool> repeatable = plan.graph.repeatable();
  std::vector<OwnActor> taken;
  for (const Seat& seat : seats) {
    if (!repeatable[seat.section.value()]) continue;
    taken.push_back(spawn_replica(built_for(seat), seat, order.epoch));
  }
  return taken;
}

const BuiltReplica& ProcessRun::State::built_for(const Seat& seat) const {
  const auto has_seat = [&](const BuiltReplica& built) {
    return built.place.section == seat.section && built.place.replica == seat.replica;
  };
  if (const auto own = std::ranges::find_if(replicas, has_seat); own != replicas.end()) return *own;
  return *std::ranges::find(replicas, seat.section, [](const BuiltReplica& one) { return one.place.section; });
}

std::vector<ReplicaPlacement> ProcessRun::State::own_places() const {
  if (joins_later()) return joining_places(place.joins, process, place.join_devices);
  std::vector<ReplicaPlacement> own;
  std::ranges::copy_if(plan.places, std::back_inserter(own),
                       [&](const ReplicaPlacement& at) { return at.process == process && !at.shares; });
  return own;
}

std::vector<ReplicaPlacement> ProcessRun::State::joining_places(const std::string& section, ProcessId joining_process,
                                                                const std::string& wanted) const {
  Joining as{section, joining_process, hosts.at(joining_process.value()), 0};
  if (as.host == 0) as.before = std::max<std::int64_t>(joining_process.value() - place.processes, 0);
  const std::int64_t cores = plan.options.cpu_devices > 0 ? plan.options.cpu_devices : std::ssize(usable_cores());
  return places_of_joining(plan.graph, plan.places, as, wanted, cores);
}

void ProcessRun::State::bury(const ProcessInfo& lost, bool here) {
  network->abandon(lost.process);
  launcher->forgive(lost.process);
  if (!here) return;
  ProcessHandle(lost.identity).kill();  // a stopped process would stay for ever
  remove_sockets_of_lost(lost.identity);
}

}  // namespace maestro
