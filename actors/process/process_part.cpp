// SPDX-License-Identifier: Apache-2.0
#include "actors/process/process_part.hpp"

#include "actors/job/lane_text.hpp"
#include "actors/job/planning_options.hpp"
#include "runtime/core/usable_cores.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {

namespace {

/// Returns the host of each process that the job may have. Each process that joins later gets a separate host, unless
/// the job has a single host.
std::vector<std::uint32_t> hosts_of(const ResolvedJob& job) {
  const LaunchInfo& run = job.options.launch_info;
  std::vector<std::uint32_t> hosts = run.place.hosts;
  for (std::size_t more = run.place.processes > 1 ? most_joining(job.graph) : 0; more > 0; --more) {
    hosts.push_back(run.several_hosts() ? hosts.back() + 1 : 0);
  }
  return hosts;
}

}  // namespace

ProcessPart::ProcessPart(const ResolvedJob& job, Console& terminal, RunMemory& kept)
    : plan(job),
      console(terminal),
      memory(kept),
      job_start(kept.start.get()),
      place(job.options.launch_info.place),
      hosts(hosts_of(job)),
      process(static_cast<std::uint32_t>(place.rank)),
      record(kept.record),
      losses(static_cast<std::size_t>(std::ranges::count(record->recoveries, false, &Recovery::rollback))) {}

bool ProcessPart::has_state() const {
  return is_root() || std::ranges::any_of(own_places(), [this](const ReplicaPlacement& at) {
           return plan.graph.node(at.section).trained();
         });
}

bool ProcessPart::recovers_in_place() const {
  return plan.train.recover == RecoverChoice::restart && plan.train.max_recoveries > 0 && placements_may_move();
}

bool ProcessPart::placements_may_move() const {
  if (plan.stage.given()) return false;  // a replacement process would not know the stage
  const bool wanted = plan.train.recover == RecoverChoice::restart || joining() > 0;
  // The phases of a synchronous plan count the lanes that existed when the step began.
  return several() && wanted && !scheduling_policy(plan)->synchronous() &&
         why_placements_stay(plan.graph, plan.places).empty();
}

std::vector<ReplicaPlacement> ProcessPart::own_places() const {
  if (joins_later()) return joining_places(place.joins, process, place.join_devices);
  std::vector<ReplicaPlacement> own;
  std::ranges::copy_if(plan.places, std::back_inserter(own),
                       [&](const ReplicaPlacement& at) { return at.process == process && !at.shares; });
  return own;
}

std::vector<ReplicaPlacement> ProcessPart::joining_places(const std::string& section, ProcessId joining_process,
                                                          const std::string& wanted) const {
  Joining as{section, joining_process, hosts.at(joining_process.value()), 0};
  if (as.host == 0) as.before = std::max<std::int64_t>(joining_process.value() - place.processes, 0);
  const std::int64_t cores = plan.options.cpu_devices > 0 ? plan.options.cpu_devices : std::ssize(usable_cores());
  return places_of_joining(plan.graph, plan.places, as, wanted, cores);
}

std::map<SectionId, StepId> ProcessPart::trained_until() const {
  std::map<SectionId, StepId> until;
  for (std::uint32_t index = 0; index < plan.graph.nodes().size(); ++index) {
    const auto found = start.stored.ahead.find(plan.graph.nodes()[index].section_name());
    if (found != start.stored.ahead.end()) until[SectionId(index)] = StepId(found->second);
  }
  return until;
}

JobText ProcessPart::job_text() const {
  JobText text;
  text.job = plan.effective_job +
             "\n[corpus]\ntraining_samples = " + std::to_string(plan.corpus->samples(Split::train)) +
             "\nvalidation_samples = " + std::to_string(plan.corpus->samples(Split::validation)) + "\n";
  const DataFingerprint data = plan.corpus->fingerprint();
  if (const auto content = data.find("content"); content != data.end()) {
    text.job += "content = \"" + content->second + "\"\n";
  }
  text.job += "\n[places]\n";
  for (const ReplicaPlacement& at : plan.places) {
    text.job += plan.graph.node(at.section).name + ".replica" + std::to_string(at.replica.value()) + " = \"" +
                place_text(at) + "\"\n";
  }
  if (stores_checkpoints()) text.shared_folder = plan.train.out;
  text.resume = plan.options.resume;
  text.most_processes = hosts.size();
  // After a network cut that a running job survives, TCP waits for the same time again.
  text.silence = std::chrono::milliseconds(static_cast<std::int64_t>(plan.train.peer_timeout_s * 2000));
  return text;
}

std::filesystem::path ProcessPart::record_path() const {
  return std::filesystem::path(plan.train.out) / record_folder;
}

}  // namespace maestro
