// SPDX-License-Identifier: Apache-2.0
// A process's part in moves of seats (SV-8): replicas of repeatable sections that begin anew, also in seats of a lost
// process.
#include <algorithm>

#include "actors/control/control_place.hpp"
#include "actors/job/planning_options.hpp"
#include "actors/job/seats.hpp"
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

SeatOptions ProcessRun::State::seat_options() {
  SeatOptions options;
  const auto most = static_cast<std::size_t>(plan.train.max_recoveries);
  options.host = &host;
  if (recovers_in_place()) options.most = most - std::min<std::size_t>(most, losses);
  options.epoch = rendezvous_info.epoch;
  options.starts = is_root() && replacements_may_come();
  options.may_join = joining() > 0;
  options.by_hand = by_hand();
  for (const PlannedSection& section : plan.sections) {
    if (section.config.elastic && section.stage.first() && is_root()) options.elastic.push_back(section.config.name);
  }
  return options;
}

bool ProcessRun::State::replacements_may_come() const {
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

void ProcessRun::State::Host::start_again(ProcessId lost) {
  const std::lock_guard lock(state_.spawned_mutex);
  if (state_.seats_closed) return;
  if (state_.starting.joinable()) state_.starting.join();  // it has ended
  state_.await_start(lost, [&state = state_, lost] {
    state.job_start->start_again(*state.launcher, state.job_text(), state.rendezvous_info, lost);
  });
}

void ProcessRun::State::Host::start_new(ProcessId joining, const std::string& section) {
  const std::lock_guard lock(state_.spawned_mutex);
  if (state_.seats_closed) return;
  if (state_.starting.joinable()) state_.starting.join();  // it has ended
  state_.launcher->forgive(joining);                       // the run relies on it from its seat on
  state_.await_start(joining, [&state = state_, joining, section] {
    state.job_start->start_new(*state.launcher, state.job_text(), state.rendezvous_info, joining, section);
  });
}

void ProcessRun::State::Host::left(ProcessId leaver) {
  state_.network->abandon(leaver);
  state_.launcher->forgive(leaver);
}

void ProcessRun::State::Host::seated(ProcessId replacement) {
  state_.launcher->rely_on(replacement);
  state_.job_start->started_again();
}

void ProcessRun::State::Host::warn(const std::string& line) {
  state_.console.finish();
  state_.console.warning(line);
}

void ProcessRun::State::Host::begun(const std::string& line) {
  warn(line + " (recovery " + std::to_string(++state_.losses) + " of " +
       std::to_string(state_.plan.train.max_recoveries) + ")");
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

std::vector<OwnActor> ProcessRun::State::Host::take(const MoveSeats& order) {
  const std::lock_guard lock(state_.spawned_mutex);
  if (state_.seats_closed) return {};
  std::vector<Seat>& seats = state_.seats;
  if (state_.by_hand() && seats.empty() && !order.moved.empty()) {
    note("joined the run: " + text_of(order.moved, state_.plan.graph));
  }
  follow_moves(seats, order.moved, state_.process);
  const std::vector<bool> repeatable = state_.plan.graph.repeatable();
  std::vector<OwnActor> taken;
  for (const Seat& seat : seats) {
    if (!repeatable[seat.section.value()]) continue;
    taken.push_back(state_.spawn_replica(state_.built_for(seat), seat, order.epoch));
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

void ProcessRun::State::Host::remove(const ProcessInfo& lost, bool here) {
  left(lost.process);
  if (!here) return;
  ProcessHandle(lost.identity).kill();  // a stopped process would stay for ever
  remove_sockets_of_lost(lost.identity);
}

}  // namespace maestro
