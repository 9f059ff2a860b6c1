// SPDX-License-Identifier: Apache-2.0
#include "actors/process/process_run.hpp"

#include <chrono>
#include <future>
#include <set>

#include "actors/control/control_place.hpp"
#include "actors/job/headroom.hpp"
#include "actors/job/lane_text.hpp"
#include "actors/job/memory_table.hpp"
#include "actors/job/planning_options.hpp"
#include "actors/job/preflight.hpp"
#include "actors/job/reduction_paths.hpp"
#include "actors/job/transfer_paths.hpp"
#include "actors/launch/listen_address.hpp"
#include "actors/live/http_address.hpp"
#include "actors/process/emergency_exit.hpp"
#include "actors/process/model_folders.hpp"
#include "actors/process/process_state.hpp"
#include "runtime/core/last_words.hpp"
#include "runtime/record/run_log.hpp"
#include "sections/model_config.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/fabric/shared_memory_sweep.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds closing_limit(30000);
constexpr milliseconds failed_limit(2000);

/// Checks that a run can write its files in train.out.
void check_output_folder(const TrainConfig& train) {
  const fs::path out = train.out;
  std::vector<fs::path> folders{out, out / record_folder, out / "checkpoints"};
  if (train.checkpoint_at_end && train.export_dtype != ExportChoice::none) folders.push_back(out / "models");
  for (const fs::path& folder : folders) check_writable_folder(folder, "train.out");
  for (const fs::path& file : {fs::path(run_file), fs::path(record_folder) / steps_file,
                               fs::path(record_folder) / events_file, fs::path(".lock")}) {
    check_writable_file(out / file, "train.out");
  }
}

}  // namespace

void ProcessRun::State::check_surroundings() const {
  // Threads: CAF, one per device, writers and watchers. Descriptors: connections to the other processes.
  std::set<DeviceId> devices_here;
  for (const ReplicaPlacement& at : part.plan.places) {
    if (at.process == part.process) devices_here.insert(at.devices.begin(), at.devices.end());
  }
  // Rank 0 requires more, so that a single process reports the problem if all processes have the same limits.
  const std::size_t files = (part.is_root() ? 32 : 24) + 4 * static_cast<std::size_t>(part.place.processes);
  require_headroom({.threads = 16 + devices_here.size(), .descriptors = files});
  // Checked before the processes meet, so that one of them prints the reason. Some threads start before CAF's.
  require_headroom({.threads = ActorEnvironment::threads + 4, .allocating = true});
  if (!part.is_root()) return;  // rank 0 has done the checks below, and listens by now
  check_output_folder(part.plan.train);
  if (!part.plan.options.report.empty()) check_writable_file(part.plan.options.report, "--report");
  if (!part.plan.options.trace.empty()) check_writable_file(part.plan.options.trace, "--trace");
  // Removes segments of a killed run, which this run may continue. Several processes sweep when they open the network.
  if (!part.several() && !part.plan.options.check_only) (void)sweep_shared_memory();
  if (part.several()) check_control_address(part.plan.options.control);
  if (!part.starts_again()) check_http_address(part.plan.options.http, services.keys() != nullptr);
  TransportConfig transport = part.plan.transport;
  if (part.job_start) {
    transport.listen = part.job_start->access().listen();
  } else if (part.several()) {  // only `check`
    const bool any = transport.listen == "0.0.0.0";
    transport.listen = choose_listen_address(any ? "auto" : transport.listen, "127.0.0.1", interface_addresses());
  }
  if (part.several()) check_port_free(transport);
  // A provider that nearly every machine has is checked while the other processes start (JobStart::gather()).
  const std::string provider = provider_override().value_or(transport.provider);
  const bool later = part.job_start && (provider == "auto" || provider == "tcp");
  if ((part.several() || part.plan.transport.force_rma) && !later) check_provider(transport);
}

void ProcessRun::State::make_shadows() {
  const bool check = part.plan.options.check_only;
  const bool required = part.plan.train.shadow_every > 0 && (part.several() || !check);
  const bool useful = part.several() && recovery.may_recover() && !part.plan.options.launch_info.several_hosts() &&
                      !has_emulated(part.plan);
  if (!(required || (useful && !check)) || part.memory.shadows) return;
  constexpr std::int64_t bytes_of_parameter = 3 * sizeof(float);  // value and two moments
  std::int64_t bytes = 0;
  for (std::size_t index = 0; index < part.plan.sections.size(); ++index) {
    const GraphNode& node = part.plan.graph.nodes()[index];
    if (node.trained()) bytes += part.plan.held[index].all * node.layout.ranks() * bytes_of_parameter;
  }
  part.memory.shadows.emplace(prepared_files_folder(part.plan));
  const Status room = part.memory.shadows->room_for(static_cast<std::uint64_t>(bytes));
  if (required) room.or_throw();
  if (!room || check) part.memory.shadows.reset();
}

std::string ProcessRun::State::on_host(std::uint32_t host) const {
  const LaunchInfo& run = part.plan.options.launch_info;
  if (!run.several_hosts()) return {};
  return " on host " + (run.host_names.empty() ? std::to_string(host) : run.host_names[host]);
}

void ProcessRun::State::print_header() const {
  if (part.plan.options.quiet || !part.is_root()) return;
  if (part.memory.stages_done > 0 && part.start.begins_stage(part.plan)) {
    part.console.note(part.plan.stages.line(static_cast<std::size_t>(part.plan.stage.number - 1)));
  }
  if (part.starts_again()) return;
  std::string header = "job " + part.plan.name + ": " + std::to_string(all_steps(part.plan)) + " steps of " +
                       std::to_string(part.plan.train.global_batch) + " samples, " +
                       std::to_string(part.plan.options.processes) + (part.several() ? " processes" : " process") +
                       ", transport: " + built.network().provider();
  part.console.note(header);
  part.console.note("  corpus    " + part.plan.corpus->describe());
  part.console.note("  memory    " + memory_in_short(part.plan) + " (estimate)");
  for (const auto& at : part.plan.places) {
    const GraphNode& node = part.plan.graph.node(at.section);
    if (node.role == Role::source) continue;
    part.console.note("  " + node.name + " replica " + std::to_string(at.replica.value()) + " on " + place_text(at) +
                      on_host(at.host) + ", " +
                      std::string(name_of(part.plan.sections[at.section.value()].config.precision)) +
                      (node.trained()     ? ", trained"
                       : node.generates() ? ", generates"
                                          : ", frozen"));
  }
  for (const std::string& line :
       TransferPaths(part.plan.graph, part.plan.places, part.plan.transport.force_rma).describe()) {
    part.console.note("  " + line);
  }
  for (const std::string& line :
       describe_reductions(part.plan.graph, part.plan.places, part.plan.transport.force_rma)) {
    part.console.note("  " + line);
  }
  for (const std::string& note : part.plan.notes) part.console.note("  note: " + note);
  for (const std::string& note : part.claim.notes) part.console.note("  note: " + note);
  if (part.start.first_step == 1) return;
  const bool complete = part.start.first_step > static_cast<std::uint64_t>(all_steps(part.plan));
  part.console.note("  resuming after step " + std::to_string(part.start.first_step - 1) +
                    (complete ? ", the last of the run: all steps are trained" : ""));
}

void ProcessRun::State::print_models() const {
  for (std::size_t index = 0; index < part.plan.sections.size(); ++index) {
    const std::string model = part.plan.meta_sections[index]->description();
    const bool first = part.plan.sections[index].stage.first();
    if (first && !model.empty()) part.console.note(part.plan.sections[index].config.name + ": " + model);
  }
}

void ProcessRun::State::print_memory() const {
  part.console.note("memory (estimate)");
  for (const std::string& line : describe_memory(part.plan)) part.console.note("  " + line);
}

/// Brings the processes together, and connects this process's supervisor to rank 0's supervisor.
void ProcessRun::State::join_job() {
  JoinRoot root;
  if (part.job_start && !part.is_root()) {
    part.rendezvous_info = part.job_start->join(part.job_text());
    if (part.memory.again && part.has_state()) part.start = find_start_point(part.plan, part.rendezvous_info.resume);
    open_actors();
    root.root = find_root();
  } else if (part.job_start) {
    part.rendezvous_info = part.job_start->gather(
        *part.launcher, part.job_text(), [this](const RendezvousInfo& info, const std::string& address, auto port) {
          part.rendezvous_info = info;
          open_actors();
          route_child_ends();
          // gather() sends the returned port with its RendezvousInfo.
          return built.actors().publish(built.supervisor(), address, static_cast<std::uint16_t>(port));
        });
    route_child_ends();  // also receives earlier ends
    root.root = built.supervisor();
  } else {
    part.rendezvous_info = new_rendezvous_info();
    open_actors();
    root.root = built.supervisor();
  }
  send_from_outside(built.supervisor(), root);
}

/// Joins the job's other processes. Returns a result if the start has failed and this was reported; throws JobError for
/// other failures.
std::optional<RunResult> ProcessRun::State::try_to_join() {
  try {
    join_job();
    return std::nullopt;
  } catch (const JobError& problem) {
    const bool late =
        part.starts_again() && problem.code() == ErrorCode::timeout;  // a process that did not join is lost
    const bool peer_lost = part.job_start != nullptr && (late || problem.code() == ErrorCode::peer_lost);
    if (peer_lost && !part.is_root()) part.job_start->leave(problem.what());
    close_failed_start(problem.what());
    if (peer_lost && part.starts_again() && recovery.may_recover()) {
      recovery.end_failed_start(problem.what());
      return RunResult();
    }
    if (peer_lost) {
      part.console.error(problem.what());
      RunResult lost;
      lost.status = 1;
      return lost;
    }
    // Rank 0 has waited until its children ended; one of them may have printed the reason (JS-3).
    const bool reported =
        part.job_start != nullptr && (part.job_start->child_printed() || problem.code() == ErrorCode::cancelled);
    if (!reported || part.job_start->prints_refusals()) throw;
    RunResult refused;
    refused.status = 2;
    return refused;
  }
}

/// Builds and announces this process's part. A failure ends the job; with several processes, the supervisors do that.
void ProcessRun::State::begin() {
  try {
    if (part.job_start) part.job_start->check_shared_folder(part.rendezvous_info);
    built.build();
    part.console.begin_run();
    set_form_of_last_words(part.console.form());
    print_header();
    introduce();
    if (part.job_start) part.job_start->begun();
  } catch (const std::exception& problem) {
    if (!part.several()) {
      const JobError reported(describe(std::current_exception()), ErrorCode::unavailable);
      close_failed_start(reported.what());
      throw reported;
    }
    const std::string whose = part.is_root() ? std::string() : part.job_start->access().own_name() + ": ";
    send_from_outside(built.supervisor(), Failure{whose + describe(std::current_exception())});
  }
}

void ProcessRun::State::stop() {
  part.begin_part("closing the services");
  placements.close();
  services.close();
  built.stop_threads();
  part.begin_part("releasing the services");
  stop_policy.ends();
  if (part.job_start) part.job_start->route_child_ends({});
  services.release();
  built.stop_actors();
}

RunResult ProcessRun::State::succeed(const RunOutcome& ended) {
  part.console.finish();
  if (part.by_hand()) part.console.note(ended.left ? "left the run, which continues" : "the run has ended");
  // Removes segments of lost processes, and of a process whose start was interrupted by the run's end.
  if (part.starts_again() || part.joining() > 0) (void)sweep_shared_memory();
  const ProcessTotals totals = total_of(ended.processes);
  RunResult result = make_result(*part.record, totals);
  if (part.is_root()) outputs.write_rest(result, ended);
  return result;
}

int ProcessRun::State::fail(const RunOutcome& ended) {
  part.console.finish();
  if (!ended.error.empty()) part.console.error(ended.error);  // first: the steps below may hang
  if (const auto& journal = outputs.journal()) {
    journal->event("failed", {{"step", part.record->last_step}, {"error", ended.error}});
    outputs.flush();
  }
  if (part.by_hand()) part.console.note("if the run continues without this process, join it again with `maestro join`");
  part.bound("the end of the failed run", part.several() ? departure_limit : failed_limit);
  services.stop();
  if (!part.several()) {
    stop();
    part.watchdog->no_limit();
    return 1;
  }
  stop_policy.leave_failed(ended.lost);  // PR-2
}

void ProcessRun::State::end_stage() {
  part.console.finish();
  outputs.close_record();
  part.bound("the end of the stage", closing_limit);
  stop();
  part.memory.frozen.keep(part.plan.graph, built.replicas());
  part.memory.shadows.reset();  // the next stage trains other sections
  part.memory.again = !part.is_root();
  part.memory.enters_stage = true;
  ++part.memory.stages_done;
  if (part.job_start) part.job_start->tidy_start();
  part.bound({}, milliseconds(0));
}

/// Ends a partial start before the caller reports `problem`, which the watchdog prints at once if the end hangs.
void ProcessRun::State::close_failed_start(const std::string& problem) {
  part.bound(problem + "; the end of the process", failed_limit);
  stop();
  part.launcher->end_others({}, milliseconds(0));
  part.bound({}, milliseconds(0));
}

ProcessRun::ProcessRun(const ResolvedJob& plan, Console& console, RunMemory& memory)
    : state_(std::make_unique<State>(plan, console, memory)) {}
ProcessRun::~ProcessRun() {
  state_->stop();
  state_->part.watchdog.reset();  // before the policy that it calls
}

void ProcessRun::prepare() {
  State& state = *state_;
  // Replacement and joining processes load no state, since newer checkpoints may have replaced the start's checkpoint.
  // A process from an earlier start receives the checkpoint from rank 0.
  if (state.part.has_state() && !state.part.memory.again)
    state.part.start = find_start_point(state.part.plan, state.part.plan.options.resume);
  if (std::exchange(state.part.memory.enters_stage, false)) {
    state.part.record->owed.reset();
  } else if (state.part.recovering()) {
    state.recovery.continue_record();
  } else if (state.part.memory.stages_done == 0) {
    state.part.record->resumed_from = state.part.record->last_step = state.part.start.first_step - 1;
  }
  for (std::size_t index = 0; index < state.part.plan.sections.size(); ++index) {
    const SectionConfig& config = state.part.plan.sections[index].config;
    if (config.weights.empty()) continue;
    SectionContext context;
    context.name = config.name;
    context.precision = config.precision;
    context.trained = state.part.plan.graph.node(SectionId(static_cast<std::uint32_t>(index))).trained();
    context.meta = true;
    context.ops = &state.part.memory.ops;
    check_same_model(state.part.plan.sections[index].factory(context)->config_json(), config.weights).or_throw();
  }
  state.placements.check_elastic();
  state.check_surroundings();
  if (!state.part.is_root()) return;
  state.make_shadows();
  state.built.builder().try_stored_states(state.part.process, state.part.starts_again());
  state.part.claim = claim_run(state.part.plan, state.part.start, state.part.memory.run);
  state.part.memory.run = state.part.claim.origin.run;
  if (!state.part.plan.options.check_only) {
    state.part.claim.origin.dtypes =
        prepare_model_files(state.part.plan, state.part.start, prepared_files_folder(state.part.plan));
    return;
  }
  check_start(state.part.plan, state.part.start);
  state.print_models();
  state.print_memory();
  for (const std::string& note : state.part.claim.notes) state.part.note(note);
}

std::optional<RunResult> ProcessRun::run() {
  State& state = *state_;
  std::future<RunOutcome> future = state.outcome->future();
  std::unique_ptr<Launcher>& launcher = state.part.memory.launcher;
  if (!launcher) {
    launcher = std::make_unique<Launcher>(
        [start = state.part.job_start](ProcessId process, const std::string& how) { start->child_ended(process, how); },
        [start = state.part.job_start](ProcessId process, bool stopped) { start->child_stopped(process, stopped); },
        [&console = state.part.console](const std::string& host, const std::string& line) {
          return console.relay(host, line);
        });
  }
  state.part.watchdog =
      std::make_unique<Watchdog>([&state](const std::string& line) { state.stop_policy.expired(line); });
  Watchdog& watchdog = *state.part.watchdog;
  state.part.launcher = launcher.get();
  SignalWatcher signals([&](int signal) { state.stop_policy.signalled(signal); });
  if (std::optional<RunResult> refused = state.try_to_join()) {
    return state.recovery.begun() ? std::nullopt : refused;
  }
  state.begin();
  RunOutcome ended = future.get();
  watchdog.stop_watching();
  if (ended.again) {
    state.recovery.end_to_start_again();
    return std::nullopt;
  }
  if (!ended.ok && state.part.record->rollback && state.recovery.end_to_roll_back(ended)) return std::nullopt;
  if (ended.recoverable && state.recovery.may_recover()) {
    state.recovery.end_to_recover(ended);
    return std::nullopt;
  }
  if (!ended.ok) {
    RunResult failed;
    failed.status = state.fail(ended);
    failed.error = ended.error;
    return failed;
  }
  if (ended.next_stage) {
    state.end_stage();
    return std::nullopt;
  }
  state.stop_policy.complete();
  signals.forgive_late_signals();
  state.outputs.write_trace_part();
  state.outputs.close_record();
  state.outputs.write_report(ended);
  state.part.bound("the end of the run", closing_limit);
  state.stop();
  state.part.begin_part("ending the other processes");
  launcher->kill_forgiven();
  launcher->end_all(milliseconds(10000));
  watchdog.no_limit();
  RunResult result = state.succeed(ended);
  if (!launcher->all_clean()) {
    state.stop_policy.tidy_up({});
    state.part.console.error("the run is complete, but another of its processes ended with an error");
    result.status = 1;
  }
  return result;
}

}  // namespace maestro
