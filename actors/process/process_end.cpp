// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <system_error>
#include <thread>

#include "actors/control/control_place.hpp"
#include "actors/job/memory_table.hpp"
#include "actors/job/planning_options.hpp"
#include "actors/messages/wait_text.hpp"
#include "actors/process/emergency_exit.hpp"
#include "actors/process/process_state.hpp"
#include "runtime/observe/trace.hpp"
#include "runtime/record/run_folder.hpp"
#include "runtime/record/run_log.hpp"
#include "transport/fabric/shared_memory_sweep.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds failed_limit(2000);
constexpr milliseconds recovery_patience(700);  // for the other processes to end by themselves
constexpr milliseconds departure_limit(5000);   // exit_now() bounds itself (DE-1)
constexpr milliseconds survivor_limit(2000);    // for a process that rank 0 can start anew

/// Waits for a trace file: processes of other launchers or hosts may still write theirs, or write it where it is not
/// visible here.
bool appears(const fs::path& file, Clock::time_point deadline) {
  while (!fs::exists(file)) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(10));  // no event reports a new file
  }
  return true;
}

}  // namespace

void ProcessRun::State::stop() {  // PR-1: in this order
  close_seats();
  if (questions) questions->close();
  control.reset();
  http.reset();
  groups_end->set("the run has ended");  // before devices stop: their streams may wait for a peer
  for (const BuiltReplica& replica : replicas) replica.abort("the run has ended");
  for (auto& [id, made] : devices) {
    if (made) made->stop();  // null: it could not be opened
  }
  opened.close_all();
  if (emulated_clock) emulated_clock->stop();
  snapshots.stop();
  if (network) network->stop();
  begun = false;
  supervised = false;
  if (job_start) job_start->route_child_ends({});
  coordinator = nullptr;
  supervisor = nullptr;
  for (const caf::actor& actor : spawned) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  spawned.clear();
  questions.reset();
  actors.reset();
}

/// Merges the traces of the processes that were there at the end, and of those that had left by then.
void ProcessRun::State::write_trace(const RunOutcome& ended) {
  constexpr std::chrono::seconds patience(5);
  const auto deadline = Clock::now() + patience;
  std::vector<fs::path> parts;
  for (std::int64_t at = 0; at < std::ssize(hosts); ++at) {
    const ProcessId of_process(static_cast<std::uint32_t>(at));
    const std::string trace_of = "the trace of process " + std::to_string(at);
    const fs::path part = trace_part(at);
    const bool there =
        std::ranges::find(ended.processes, of_process, &ProcessSummary::process) != ended.processes.end();
    if (there ? appears(part, deadline) : fs::exists(part)) {
      parts.push_back(part);
    } else if (there) {
      console.note(trace_of + " stayed on its host, in " + part.string());
    } else if (at < plan.options.processes) {
      console.note(trace_of + ", which was lost, is missing");
    }
  }
  merge_traces(parts, plan.options.trace).or_throw();
  for (const fs::path& part : parts) fs::remove(part);
}

/// Runs while the control service and the live page still answer: with millions of rows it takes minutes.
void ProcessRun::State::write_report(const RunOutcome& ended) {
  constexpr std::uint64_t many_steps = 100'000;
  if (!is_root() || plan.options.report.empty()) return;
  console.finish();
  if (record->last_step > many_steps) {
    console.note("writing the report of " + std::to_string(record->last_step) + " steps to " +
                 plan.options.report.string());
  }
  Report report = make_report(plan, *record, total_of(ended.processes), report_rows());
  if (rehearsal) add_rehearsal(*rehearsal, report);
  report_written = report.write(plan.options.report);
}

void ProcessRun::State::write_outputs(RunResult& result, const RunOutcome& ended) {
  constexpr double bytes_per_mb = 1e6;
  result.steps = static_cast<std::uint64_t>(plan.train.steps);
  result.wall_seconds = std::chrono::duration<double>(Clock::now() - memory.begun).count();
  result.losses = record->losses;
  for (const Recovery& recovered : record->recoveries) result.recoveries.push_back(line_of(recovered));
  result.left_out = record->left_out;
  if (rehearsal && *rehearsal) result.rehearsal = **rehearsal;
  if (journal) result.record = (fs::path(plan.train.out) / record_folder).string();
  result.estimated_mb = host_bytes(estimate_memory(plan)) / bytes_per_mb;
  if (!plan.options.report.empty()) {
    report_written.or_throw();
    result.report = plan.options.report.string();
  }
  if (!plan.options.trace.empty()) {
    write_trace(ended);
    result.trace = plan.options.trace.string();
  }
  if (record->checkpoint.empty()) return;
  result.resume = plan.train.out;
  for (const GraphNode& node : plan.graph.nodes()) {
    if (!node.trained()) continue;
    result.weights[node.section_name()] = (fs::path(record->checkpoint) / node.section_name()).string();
  }
  if (record->interrupted) return;
  // Again: the folder may have been removed in mid-run, and models without a record would be those of another run.
  RunFolder(plan.train.out).record(claim.origin.run).or_throw();
  const auto models = export_models(plan, record->checkpoint);
  if (models) {
    result.models = *models;
    return;
  }
  console.error("the run is complete, with its weights in " + record->checkpoint + ", but " + models.error().message);
  result.status = 1;
}

RunResult ProcessRun::State::succeed(const RunOutcome& ended) {
  console.finish();
  if (by_hand()) console.note(ended.left ? "left the run, which goes on" : "the run has ended");
  if (recovering()) (void)sweep_shared_memory();  // of lost processes
  const ProcessTotals totals = total_of(ended.processes);
  RunResult result = make_result(*record, totals);
  if (is_root()) write_outputs(result, ended);
  return result;
}

int ProcessRun::State::fail(const RunOutcome& ended) {
  console.finish();
  if (!ended.error.empty()) console.error(ended.error);  // first: the steps below may hang
  if (journal) {
    journal->event("failed", {{"step", record->last_step}, {"error", ended.error}});
    journal->flush(milliseconds(500));
  }
  if (by_hand()) console.note("if the run goes on without this process, `maestro join` it again");
  bound("the end of the failed run", several() ? departure_limit : failed_limit);
  if (control) control->stop();  // removes its socket
  if (http) http->stop();
  if (!several()) {
    stop();
    watchdog->no_limit();
    return 1;
  }
  EmergencyExit emergency_exit;  // PR-2
  emergency_exit.last = [this, lost = ended.lost] { tidy_up(lost); };
  emergency_exit.lost = ended.lost;
  emergency_exit.close = [this] {
    if (network) network->stop();  // null when building failed
    groups_end->set("the run has failed");
  };
  exit_now(*launcher, emergency_exit);
}

bool ProcessRun::State::may_recover() const {
  const bool starts_all = plan.options.launch_info.starts_others() || !several();
  return is_root() && starts_all && !stopping && plan.train.recover == RecoverChoice::restart &&
         static_cast<std::int64_t>(losses) < plan.train.max_recoveries;
}

void ProcessRun::State::begin_recovery(const std::string& cause, Clock::time_point since) {
  recovery.emplace();
  recovery->cause = cause;
  recovery->begun = since;
  console.finish();
  const std::string from =
      record->newest.empty() ? "where the run began, as it has no checkpoint yet" : "from " + record->newest;
  console.warning(cause + "; starting again " + from + " (recovery " + std::to_string(++losses) + " of " +
                  std::to_string(plan.train.max_recoveries) + ")");
}

void ProcessRun::State::end_to_recover(const RunOutcome& ended) {
  begin_recovery(ended.error, ended.lost_at);
  take_down(ended);
}

/// Ends the processes that take no part in the next start, and takes down what this process has built.
void ProcessRun::State::take_down(const RunOutcome& ended) {
  bound("the end of the processes before the recovery", departure_limit);
  close_seats();
  if (journal) journal->flush(milliseconds(500));
  for (const ProcessIdentity& lost : ended.lost) ProcessHandle(lost).kill();
  launcher->end_others(ended.survivors, recovery_patience);
  for (std::uint32_t other = 1; other < hosts.size(); ++other) {
    if (network) network->abandon(ProcessId(other));  // stop() would await writes to them
  }
  stop();
  memory.frozen.keep(plan.graph, replicas);
  record->recoveries.push_back(*recovery);  // the coordinator, which also records some, has ended
  if (job_start) job_start->tidy_start();
  remove_sockets(ended.lost, launcher->ended_pids());
  (void)sweep_shared_memory();  // of the processes that have ended
  bound({}, milliseconds(0));
}

/// Takes down what this process, which is not rank 0, has built.
void ProcessRun::State::end_to_start_again() {
  replaceable = true;
  bound("the end of the process before the recovery", survivor_limit);
  for (std::uint32_t other = 0; other < hosts.size(); ++other) {
    if (network && other != process.value()) network->abandon(ProcessId(other));
  }
  stop();
  memory.frozen.keep(plan.graph, replicas);
  memory.again = true;
  remove_sockets({}, {});
  bound({}, milliseconds(0));
}

bool ProcessRun::State::may_survive() const {
  const bool on_gpu = std::ranges::any_of(
      own_places(), [](const ReplicaPlacement& at) { return std::ranges::any_of(at.devices, &DeviceId::is_cuda); });
  return !is_root() && !joins_later() && !on_gpu;  // a device's context may keep the error of a peer's loss
}

/// Takes the record back to the step that the run goes on after.
void ProcessRun::State::continue_record() {
  Recovery& last = record->recoveries.back();
  last.after_step = start.first_step - 1;
  last.repeated = std::max(record->last_step, last.after_step) - last.after_step;
  record->go_back(last.after_step, start.stored.ahead, plan.graph.node(watched_section(plan.graph)).section_name());
}

/// Ends a partial start before the caller reports `problem`, which the watchdog prints at once if the end hangs.
void ProcessRun::State::close_failed_start(const std::string& problem) {
  bound(problem + "; the end of the process", failed_limit);
  stop();
  launcher->end_others({}, milliseconds(0));
  bound({}, milliseconds(0));
}

void ProcessRun::State::bound(std::string phase, milliseconds most) const {
  if (watchdog != nullptr) watchdog->limit(std::move(phase), most);
}

void ProcessRun::State::stop_in_order(const std::string& reason) {
  if (!stopping.exchange(true)) {
    console.note((reason.empty() ? "" : reason + ": ") + "stopping after this step" +
                 (has_emulated(plan) ? "" : "; a checkpoint is being written") + " (Ctrl-C again to leave at once)");
  }
  send_from_outside(coordinator, Interrupt{});
}

void ProcessRun::State::leave(int status) {
  EmergencyExit emergency_exit;
  emergency_exit.status = status;
  emergency_exit.last = [this] {
    tidy_up({});
    std::error_code gone_already;
    if (!control_socket.empty()) fs::remove(control_socket, gone_already);
  };
  emergency_exit.patience = milliseconds(0);
  exit_now(*launcher, emergency_exit);
}

/// Removes files of this process, and sockets of the processes it has ended.
void ProcessRun::State::tidy_up(const std::vector<ProcessIdentity>& lost) const {
  if (job_start) job_start->tidy();
  remove_sockets(lost, launcher->pids());
}

void ProcessRun::State::remove_sockets(const std::vector<ProcessIdentity>& lost,
                                       const std::vector<std::int64_t>& children) const {
  for (const ProcessIdentity& gone : lost) remove_sockets_of_lost(gone);
  for (const std::int64_t child : children) remove_sockets_of(child);
  remove_sockets_of(own_identity().pid);
}

void ProcessRun::State::remove_sockets_of_lost(const ProcessIdentity& lost) {
  // In another PID namespace the number may be that of a living process here (PI-1).
  if (lost.pid_namespace == own_identity().pid_namespace) remove_sockets_of(lost.pid);
}

void ProcessRun::State::leave_before_the_start(const std::string& cause) {
  while (leaving.exchange(true)) pause();  // signals to this and to another process arrive on two threads
  console.finish();
  // Of a process that rank 0 has started, rank 0 reports the end, or prints its own line.
  if (place.launcher != JobLauncher::maestro) console.error("ended by " + cause + " before the first step");
  leave(130);
}

void ProcessRun::State::signalled(int signal) {
  const StopRequests::Wish wish = stop_requests.signalled(signal, Clock::now());
  const bool repeated = wish == StopRequests::Wish::leave_at_once;
  if (!is_root() && supervised) return send_from_outside(supervisor, Interrupt{});  // rank 0 ends all in order
  if (!begun) leave_before_the_start(signal_name(signal));
  if (!repeated) return stop_in_order(signal == SIGINT ? "" : signal_name(signal));
  console.finish();
  leave(130);
}

void ProcessRun::State::watch_progress() {
  questions = std::make_unique<RunQuestions>(actors->system(), coordinator);
  Watchdog::Progress progress;
  progress.events = &events;
  progress.limit = milliseconds(static_cast<std::int64_t>(plan.train.stall_timeout_s * 1000));
  progress.work_limit = milliseconds(static_cast<std::int64_t>(plan.train.work_timeout_s * 1000));
  progress.look = [this] { return look(); };
  progress.report = [this](const std::string& line) { note(line); };
  progress.stalled = [this](const std::string& line) {
    send_from_outside(supervisor, Failure{line});
    bound(line + "; the end of the failed run", departure_limit);  // the supervisor may hang, too
  };
  if (progress.limit.count() > 0) watchdog->watch(std::move(progress));
}

/// Returns the current work of the coordinator and all replicas, for the watchdog.
StallLook ProcessRun::State::look() {
  constexpr milliseconds patience(2000);
  const RunQuestions::View view = questions->view(patience);
  StallLook look;
  look.announced = view.run.announced;
  look.events = view.run.events;
  if (!view.fresh) look.silent.emplace_back("the coordinator");
  if (!view.run.working.empty()) look.working.push_back(view.run.working);
  std::set<std::pair<SectionId, ReplicaIndex>> answered;
  for (const WaitingFor& replica : view.replicas) {
    answered.emplace(replica.section, replica.replica);
    look.events += replica.events;
    const std::string name = label_of(replica.section, replica.replica);
    const std::string wait = wait_text(replica, plan.graph);
    if (!wait.empty()) look.waiting.push_back(name + " waits for " + wait);
    if (replica.kind == WaitKind::nothing) {
      look.working.push_back(name + " has been in " + replica.doing + " of step " +
                             std::to_string(replica.step.value()));
    }
  }
  if (!view.run.directory) return look;
  for (const ReplicaAddress& replica : view.run.directory->replicas()) {
    if (answered.contains({replica.section, replica.replica})) continue;
    look.silent.push_back(label_of(replica.section, replica.replica) + " on process " +
                          std::to_string(replica.process.value()));
  }
  return look;
}

}  // namespace maestro
