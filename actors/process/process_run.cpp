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
  for (const ReplicaPlacement& at : plan.places) {
    if (at.process == process) devices_here.insert(at.devices.begin(), at.devices.end());
  }
  // Rank 0 requires more, so that a single process reports the problem if all processes have the same limits.
  const std::size_t files = (is_root() ? 32 : 24) + 4 * static_cast<std::size_t>(place.processes);
  require_headroom({.threads = 16 + devices_here.size(), .descriptors = files});
  // Checked before the processes meet, so that one of them prints the reason. Some threads start before CAF's.
  require_headroom({.threads = ActorEnvironment::threads + 4, .allocating = true});
  if (!is_root()) return;  // rank 0 has done the checks below, and listens by now
  check_output_folder(plan.train);
  if (!plan.options.report.empty()) check_writable_file(plan.options.report, "--report");
  if (!plan.options.trace.empty()) check_writable_file(plan.options.trace, "--trace");
  // Removes segments of a killed run, which this run may continue. Several processes sweep when they open the network.
  if (!several() && !plan.options.check_only) (void)sweep_shared_memory();
  if (several()) check_control_address(plan.options.control);
  if (!recovering()) check_http_address(plan.options.http, services.keys() != nullptr);
  TransportConfig transport = plan.transport;
  if (job_start) {
    transport.listen = job_start->access().listen();
  } else if (several()) {  // only `check`
    const bool any = transport.listen == "0.0.0.0";
    transport.listen = choose_listen_address(any ? "auto" : transport.listen, "127.0.0.1", interface_addresses());
  }
  if (several()) check_port_free(transport);
  // A provider that nearly every machine has is checked while the other processes start (JobStart::gather()).
  const std::string provider = provider_override().value_or(transport.provider);
  const bool later = job_start && (provider == "auto" || provider == "tcp");
  if ((several() || plan.transport.force_rma) && !later) check_provider(transport);
}

void ProcessRun::State::make_shadows() {
  const bool check = plan.options.check_only;
  const bool required = plan.train.shadow_every > 0 && (several() || !check);
  const bool useful =
      several() && recovery.may_recover() && !plan.options.launch_info.several_hosts() && !has_emulated(plan);
  if (!(required || (useful && !check)) || memory.shadows) return;
  constexpr std::int64_t bytes_of_parameter = 3 * sizeof(float);  // value and two moments
  std::int64_t bytes = 0;
  for (std::size_t index = 0; index < plan.sections.size(); ++index) {
    const GraphNode& node = plan.graph.nodes()[index];
    if (node.trained()) bytes += plan.held[index].all * node.layout.ranks() * bytes_of_parameter;
  }
  memory.shadows.emplace(prepared_files_folder(plan));
  const Status room = memory.shadows->room_for(static_cast<std::uint64_t>(bytes));
  if (required) room.or_throw();
  if (!room || check) memory.shadows.reset();
}

std::string ProcessRun::State::on_host(std::uint32_t host) const {
  const LaunchInfo& run = plan.options.launch_info;
  if (!run.several_hosts()) return {};
  return " on host " + (run.host_names.empty() ? std::to_string(host) : run.host_names[host]);
}

void ProcessRun::State::print_header() const {
  if (plan.options.quiet || !is_root() || recovering()) return;
  std::string header = "job " + plan.name + ": " + std::to_string(plan.train.steps) + " steps of " +
                       std::to_string(plan.train.global_batch) + " samples, " + std::to_string(plan.options.processes) +
                       (several() ? " processes" : " process") + ", transport: " + built.network().provider();
  console.note(header);
  console.note("  corpus    " + plan.corpus->describe());
  console.note("  memory    " + memory_in_short(plan) + " (estimate)");
  for (const auto& at : plan.places) {
    const GraphNode& node = plan.graph.node(at.section);
    if (node.role == Role::source) continue;
    console.note("  " + node.name + " replica " + std::to_string(at.replica.value()) + " on " + place_text(at) +
                 on_host(at.host) + ", " + std::string(name_of(plan.sections[at.section.value()].config.precision)) +
                 (node.trained() ? ", trained" : ", frozen"));
  }
  for (const std::string& line : TransferPaths(plan.graph, plan.places, plan.transport.force_rma).describe()) {
    console.note("  " + line);
  }
  for (const std::string& line : describe_reductions(plan.graph, plan.places, plan.transport.force_rma)) {
    console.note("  " + line);
  }
  for (const std::string& note : plan.notes) console.note("  note: " + note);
  for (const std::string& note : claim.notes) console.note("  note: " + note);
  if (start.first_step == 1) return;
  const bool complete = start.first_step > static_cast<std::uint64_t>(plan.train.steps);
  console.note("  resuming after step " + std::to_string(start.first_step - 1) +
               (complete ? ", the last of the run: all steps are trained" : ""));
}

void ProcessRun::State::print_models() const {
  for (std::size_t index = 0; index < plan.sections.size(); ++index) {
    const std::string model = plan.meta_sections[index]->description();
    const bool first = plan.sections[index].stage.first();
    if (first && !model.empty()) console.note(plan.sections[index].config.name + ": " + model);
  }
}

void ProcessRun::State::print_memory() const {
  console.note("memory (estimate)");
  for (const std::string& line : describe_memory(plan)) console.note("  " + line);
}

/// Brings the processes together, and connects this process's supervisor to rank 0's supervisor.
void ProcessRun::State::join_job() {
  JoinRoot root;
  if (job_start && !is_root()) {
    rendezvous_info = job_start->join(job_text());
    if (memory.again && has_state()) start = find_start_point(plan, rendezvous_info.resume);
    open_actors();
    root.root = find_root();
  } else if (job_start) {
    rendezvous_info = job_start->gather(
        *launcher, job_text(), [this](const RendezvousInfo& info, const std::string& address, auto port) {
          rendezvous_info = info;
          open_actors();
          route_child_ends();
          // gather() sends the returned port with its RendezvousInfo.
          return built.actors().publish(built.supervisor(), address, static_cast<std::uint16_t>(port));
        });
    route_child_ends();  // also receives earlier ends
    root.root = built.supervisor();
  } else {
    rendezvous_info = new_rendezvous_info();
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
    const bool late = recovering() && problem.code() == ErrorCode::timeout;  // a process that did not join is lost
    const bool peer_lost = job_start != nullptr && (late || problem.code() == ErrorCode::peer_lost);
    if (peer_lost && !is_root()) job_start->leave(problem.what());
    close_failed_start(problem.what());
    if (peer_lost && recovering() && recovery.may_recover()) {
      recovery.end_failed_start(problem.what());
      return RunResult();
    }
    if (peer_lost) {
      console.error(problem.what());
      RunResult lost;
      lost.status = 1;
      return lost;
    }
    // Rank 0 has waited until its children ended; one of them may have printed the reason (JS-3).
    const bool reported =
        job_start != nullptr && (job_start->child_printed() || problem.code() == ErrorCode::cancelled);
    if (!reported || job_start->prints_refusals()) throw;
    RunResult refused;
    refused.status = 2;
    return refused;
  }
}

/// Builds and announces this process's part. A failure ends the job; with several processes, the supervisors do that.
void ProcessRun::State::begin() {
  try {
    if (job_start) job_start->check_shared_folder(rendezvous_info);
    built.build();
    console.begin_run();
    set_form_of_last_words(console.form());
    print_header();
    introduce();
    if (job_start) job_start->begun();
  } catch (const std::exception& problem) {
    if (!several()) {
      const JobError reported(describe(std::current_exception()), ErrorCode::unavailable);
      close_failed_start(reported.what());
      throw reported;
    }
    const std::string whose = is_root() ? std::string() : job_start->access().own_name() + ": ";
    send_from_outside(built.supervisor(), Failure{whose + describe(std::current_exception())});
  }
}

void ProcessRun::State::stop() {
  placements.close();
  services.close();
  built.stop_threads();
  stop_policy.ends();
  if (job_start) job_start->route_child_ends({});
  services.release();
  built.stop_actors();
}

RunResult ProcessRun::State::succeed(const RunOutcome& ended) {
  console.finish();
  if (by_hand()) console.note(ended.left ? "left the run, which continues" : "the run has ended");
  // Removes segments of lost processes, and of a process whose start was interrupted by the run's end.
  if (recovering() || joining() > 0) (void)sweep_shared_memory();
  const ProcessTotals totals = total_of(ended.processes);
  RunResult result = make_result(*record, totals);
  if (is_root()) outputs.write_rest(result, ended);
  return result;
}

int ProcessRun::State::fail(const RunOutcome& ended) {
  console.finish();
  if (!ended.error.empty()) console.error(ended.error);  // first: the steps below may hang
  if (const auto& journal = outputs.journal()) {
    journal->event("failed", {{"step", record->last_step}, {"error", ended.error}});
    outputs.flush();
  }
  if (by_hand()) console.note("if the run continues without this process, join it again with `maestro join`");
  bound("the end of the failed run", several() ? departure_limit : failed_limit);
  services.stop();
  if (!several()) {
    stop();
    watchdog->no_limit();
    return 1;
  }
  stop_policy.leave_failed(ended.lost);  // PR-2
}

/// Ends a partial start before the caller reports `problem`, which the watchdog prints at once if the end hangs.
void ProcessRun::State::close_failed_start(const std::string& problem) {
  bound(problem + "; the end of the process", failed_limit);
  stop();
  launcher->end_others({}, milliseconds(0));
  bound({}, milliseconds(0));
}

ProcessRun::ProcessRun(const ResolvedJob& plan, Console& console, RunMemory& memory)
    : state_(std::make_unique<State>(plan, console, memory)) {}
ProcessRun::~ProcessRun() {
  state_->stop();
}

void ProcessRun::prepare() {
  State& state = *state_;
  // A replacement or joining process has no state to load: newer checkpoints may have replaced the start's checkpoint.
  // A process from an earlier start receives the checkpoint from rank 0.
  if (state.has_state() && !state.memory.again) state.start = find_start_point(state.plan, state.plan.options.resume);
  if (state.recovering()) {
    state.recovery.continue_record();
  } else {
    state.record->resumed_from = state.record->last_step = state.start.first_step - 1;
  }
  for (std::size_t index = 0; index < state.plan.sections.size(); ++index) {
    const SectionConfig& config = state.plan.sections[index].config;
    if (config.weights.empty()) continue;
    SectionContext context;
    context.name = config.name;
    context.precision = config.precision;
    context.meta = true;
    context.ops = &state.memory.ops;
    check_same_model(state.plan.sections[index].factory(context)->config_json(), config.weights).or_throw();
  }
  state.placements.check_elastic();
  state.check_surroundings();
  if (!state.is_root()) return;
  state.make_shadows();
  state.built.builder().try_stored_states(state.process, state.recovering());
  state.claim = claim_run(state.plan, state.start, state.memory.run);
  state.memory.run = state.claim.origin.run;
  if (!state.plan.options.check_only) {
    state.claim.origin.dtypes = prepare_model_files(state.plan, state.start, prepared_files_folder(state.plan));
    return;
  }
  check_start(state.plan, state.start);
  state.print_models();
  state.print_memory();
  for (const std::string& note : state.claim.notes) state.note(note);
}

std::optional<RunResult> ProcessRun::run() {
  State& state = *state_;
  std::future<RunOutcome> future = state.outcome->future();
  std::unique_ptr<Launcher>& launcher = state.memory.launcher;
  if (!launcher) {
    launcher = std::make_unique<Launcher>(
        [start = state.job_start](ProcessId process, const std::string& how) { start->child_ended(process, how); },
        [start = state.job_start](ProcessId process, bool stopped) { start->child_stopped(process, stopped); },
        [&console = state.console](const std::string& host, const std::string& line) {
          return console.relay(host, line);
        });
  }
  Watchdog watchdog([&](const std::string& line) { state.stop_policy.expired(line); });
  state.watchdog = &watchdog;
  state.launcher = launcher.get();
  const SignalWatcher signals([&](int signal) { state.stop_policy.signalled(signal); });
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
  if (!ended.ok && state.record->rollback && state.recovery.end_to_roll_back(ended)) return std::nullopt;
  if (ended.recoverable && state.recovery.may_recover()) {
    state.recovery.end_to_recover(ended);
    return std::nullopt;
  }
  if (!ended.ok) {
    RunResult failed;
    failed.status = state.fail(ended);
    return failed;
  }
  state.outputs.write_trace_part();
  state.outputs.close_record();
  state.outputs.write_report(ended);
  state.bound("the end of the run", closing_limit);
  state.stop();
  launcher->kill_forgiven();
  launcher->end_all(milliseconds(10000));
  watchdog.no_limit();
  RunResult result = state.succeed(ended);
  if (!launcher->all_clean()) {
    state.stop_policy.tidy_up({});
    state.console.error("the run is complete, but another of its processes ended with an error");
    result.status = 1;
  }
  return result;
}

}  // namespace maestro
