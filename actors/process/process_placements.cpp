// SPDX-License-Identifier: Apache-2.0
#include "actors/process/process_placements.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>

#include "actors/control/control_place.hpp"

namespace maestro {

namespace {
constexpr std::chrono::seconds question_limit(5);
}  // namespace

PlacementOptions ProcessPlacements::options() {
  PlacementOptions options;
  const auto most = static_cast<std::size_t>(part_.plan.train.max_recoveries);
  options.host = this;
  if (part_.recovers_in_place()) options.most = most - std::min<std::size_t>(most, part_.losses);
  options.epoch = part_.rendezvous_info.epoch;
  options.starts = part_.is_root() && part_.replacements_may_come();
  options.may_join = part_.joining() > 0;
  options.by_hand = part_.by_hand();
  for (const PlannedSection& section : part_.plan.sections) {
    const bool elastic = section.config.elastic && section.stage.first() && part_.is_root();
    if (elastic) options.elastic.push_back(section.config.name);
  }
  return options;
}

void ProcessPlacements::check_elastic() const {
  for (const PlannedSection& section : part_.plan.sections) {
    const std::string key = section.config.name + ".replicas.elastic = \"auto\": rank 0 starts and ends processes";
    if (!section.config.elastic) continue;
    if (!part_.several()) throw JobError(key + " only in a run of several; give --processes 2 or more");
    if (part_.started_by_rank_0()) continue;
    throw JobError(key + ", but " + std::string(name_of(part_.place.launcher)) +
                   " starts them in this run; leave elastic out, and use `maestro join`");
  }
}

OwnActor ProcessPlacements::begin(const ReplicaPlacement& at) {
  placements_.push_back({at.section, at.replica, part_.process});
  return built_.spawn_replica(placements_.back(), part_.rendezvous_info.epoch);
}

PlacementAnswer ProcessPlacements::query_supervisor(const caf::message& wanted) const {
  if (!part_.several()) {
    throw JobError("the run has a single process; start it with --processes 2 or more so that others can join");
  }
  caf::scoped_actor self(built_.actors().system());
  PlacementAnswer answer;
  self->request(built_.supervisor(), question_limit, wanted)
      .receive([&](const PlacementAnswer& given) { answer = given; },
               [](const caf::error&) { throw JobError("the run does not answer", ErrorCode::unavailable); });
  if (!answer.refusal.empty()) throw JobError(answer.refusal);
  return answer;
}

JoinTerms ProcessPlacements::let_join(const ElasticJoin& request) {
  const ProcessId joining = query_supervisor(caf::make_message(JoinWanted{request.section})).process;
  auto opened = std::make_shared<std::promise<JoinTerms>>();  // shared with the start, which may be dropped
  std::future<JoinTerms> terms = opened->get_future();
  try {
    (void)part_.joining_places(request.section, joining, request.devices);  // refuses devices that hosts lack
    add_start(joining, [this, joining, request, opened] {
      try {
        opened->set_value(part_.job_start->open_door(part_.job_text(), part_.rendezvous_info, joining, request));
      } catch (const JobError&) {
        return opened->set_exception(std::current_exception());
      }
      part_.job_start->await_joining(part_.job_text());
    });
    opened.reset();
    return terms.get();
  } catch (const JobError& problem) {
    send_from_outside(built_.supervisor(), ReplacementFailed{joining, problem.what()});
    throw;
  } catch (const std::future_error&) {  // the start was dropped
    throw JobError("the run is ending");
  }
}

std::string ProcessPlacements::let_leave(ProcessId leaver) {
  return query_supervisor(caf::make_message(LeaveWanted{leaver})).text;
}

void ProcessPlacements::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  if (!starts_.close()) return;
  part_.job_start->stop_starting();
  part_.launcher->kill_forgiven();
  starts_.stop();
}

void ProcessPlacements::add_start(ProcessId process, std::function<void()> start) {
  starts_.add([process, start = std::move(start), to = built_.supervisor()] {
    try {
      start();
    } catch (const std::exception& problem) {
      send_from_outside(to, ReplacementFailed{process, problem.what()});
    }
  });
}

std::vector<OwnActor> ProcessPlacements::take(const MovePlacements& order) {
  const std::lock_guard lock(mutex_);
  if (closed_) return {};
  const SectionGraph& graph = part_.plan.graph;
  if (part_.by_hand() && placements_.empty() && !order.moved.empty()) {
    note("joined the run: " + text_of(order.moved, graph));
  }
  follow_moves(placements_, order.moved, part_.process);
  const std::vector<bool> repeatable = graph.repeatable();
  std::vector<OwnActor> taken;
  for (const Placement& placement : placements_) {
    if (repeatable[placement.section.value()]) taken.push_back(built_.spawn_replica(placement, order.epoch));
  }
  return taken;
}

void ProcessPlacements::remove(const ProcessInfo& lost, bool here) {
  left(lost.process);
  if (!here) return;
  ProcessHandle(lost.identity).kill();  // a stopped process would remain forever
  remove_sockets_of(lost.identity);
}

void ProcessPlacements::left(ProcessId leaver) {
  built_.abandon(leaver);
  part_.launcher->forgive(leaver);
}

void ProcessPlacements::start_again(ProcessId lost) {
  add_start(lost, [this, lost] {
    part_.job_start->start_again(*part_.launcher, part_.job_text(), part_.rendezvous_info, lost);
  });
}

void ProcessPlacements::start_new(ProcessId joining, const std::string& section) {
  part_.launcher->forgive(joining);  // the run relies on it only after its placement
  add_start(joining, [this, joining, section] {
    part_.job_start->start_new(*part_.launcher, part_.job_text(), part_.rendezvous_info, joining, section);
  });
}

void ProcessPlacements::placed(ProcessId replacement) {
  part_.launcher->rely_on(replacement);
  part_.job_start->started_again();
}

void ProcessPlacements::begun(const std::string& line) {
  warn(line + " (recovery " + std::to_string(++part_.losses) + " of " +
       std::to_string(part_.plan.train.max_recoveries) + ")");
}

void ProcessPlacements::warn(const std::string& line) {
  part_.console.finish();
  part_.console.warning(line);
}

}  // namespace maestro
