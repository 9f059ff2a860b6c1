#include <chrono>
#include <thread>

#include "actors/departure.hpp"
#include "actors/planning_options.hpp"
#include "actors/process_state.hpp"
#include "runtime/observe/trace.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// Processes that others started, or of other hosts, may still write theirs, and may write it where it is not seen
/// here.
bool appears(const fs::path& file, Clock::time_point deadline) {
  while (!fs::exists(file)) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(10));  // of a file nobody tells
  }
  return true;
}

}  // namespace

void ProcessRun::State::stop() {
  control.reset();
  groups_end->give("the run has ended");  // before devices stop: their streams may wait for a peer
  for (const BuiltReplica& replica : replicas) replica.abort("the run has ended");
  for (auto& [name, made] : devices) made->stop();
  opened.let_go();
  if (emulated_clock) emulated_clock->stop();
  snapshots.stop();
  if (network) network->stop();
  begun = false;
  if (job_start) job_start->route_child_ends({});
  coordinator = nullptr;
  supervisor = nullptr;
  for (const caf::actor& actor : spawned) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  spawned.clear();
  actors.reset();
}

void ProcessRun::State::write_outputs(RunResult& result, const ProcessTotals& totals) {
  if (!plan.options.report.empty()) {
    make_report(plan, *record, totals).write(plan.options.report).or_throw();
    result.report = plan.options.report.string();
  }
  if (!plan.options.trace.empty()) {
    constexpr std::chrono::seconds patience(5);
    const auto deadline = Clock::now() + patience;
    std::vector<fs::path> parts;
    for (std::int64_t at = 0; at < plan.options.processes; ++at) {
      const fs::path part = trace_part(at);
      if (appears(part, deadline)) {
        parts.push_back(part);
      } else {
        console.note("the trace of process " + std::to_string(at) + " stayed on its host, in " + part.string());
      }
    }
    merge_traces(parts, plan.options.trace).or_throw();
    for (const fs::path& part : parts) fs::remove(part);
    result.trace = plan.options.trace.string();
  }
  if (record->checkpoint.empty()) return;
  for (const GraphNode& node : plan.graph.nodes()) {
    if (!node.trained()) continue;
    result.weights[node.section_name()] = (fs::path(record->checkpoint) / node.section_name()).string();
  }
}

RunResult ProcessRun::State::succeed(const RunOutcome& ended) {
  console.finish();
  const ProcessTotals totals = total_of(ended.processes);
  RunResult result = make_result(*record, totals);
  if (is_root()) write_outputs(result, totals);
  return result;
}

int ProcessRun::State::fail(const RunOutcome& ended, Launcher& launcher) {
  console.finish();
  if (control) control->stop();  // its socket is not to stay behind
  if (!ended.error.empty()) console.error(ended.error);
  if (!several()) {
    stop();
    return 1;
  }
  Departure departure;  // PR-2
  departure.last = [this] { job_start->tidy(); };
  departure.lost_pids = ended.lost_pids;
  departure.close = [this] {
    if (network) network->stop();  // there is none when building failed
    groups_end->give("the run has failed");
  };
  depart(launcher, departure);
}

void ProcessRun::State::stop_in_order() {
  console.note(std::string("stopping after this step") + (has_emulated(plan) ? "" : "; a checkpoint is being written") +
               " (Ctrl-C again to leave at once)");
  tell_from_outside(coordinator, Interrupt{});
}

void ProcessRun::State::interrupted(int count, Launcher& launcher) {
  if (count == 1 && begun) return stop_in_order();
  console.finish();
  Departure departure;
  departure.status = 130;
  departure.last = [this] {
    if (job_start) job_start->tidy();
  };
  departure.patience = milliseconds(0);
  depart(launcher, departure);
}

}  // namespace maestro
