// SPDX-License-Identifier: Apache-2.0
// State of a process's part of a run, shared by process_run.cpp (start and main path), process_setup.cpp (building and
// spawning) and process_end.cpp (the end).
#pragma once

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/control/control_service.hpp"
#include "actors/control/run_questions.hpp"
#include "actors/job/lane_text.hpp"
#include "actors/job/seats.hpp"
#include "actors/launch/launcher.hpp"
#include "actors/live/http_service.hpp"
#include "actors/process/actor_environment.hpp"
#include "actors/process/model_folders.hpp"
#include "actors/process/process_run.hpp"
#include "actors/process/replica_builder.hpp"
#include "actors/process/signal_watcher.hpp"
#include "actors/replica/replica_spec.hpp"
#include "actors/run/coordinator.hpp"
#include "actors/run/run_rehearsal.hpp"
#include "actors/run/run_report.hpp"
#include "actors/run/supervisor.hpp"
#include "actors/run/watchdog.hpp"
#include "actors/services/imported_memories.hpp"
#include "actors/services/network.hpp"
#include "actors/services/snapshot_writer.hpp"
#include "runtime/collective/abort_reason.hpp"
#include "runtime/device/emulated_device.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/observe/trace.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro {

struct ProcessRun::State {
  /// What the supervisor has this process do when seats move.
  class Host final : public SeatHost {
   public:
    explicit Host(State& state) : state_(state) {}
    std::vector<OwnActor> take(const MoveSeats& order) override;
    void remove(const ProcessInfo& lost, bool here) override;
    void left(ProcessId leaver) override;
    void start_again(ProcessId lost) override;
    void start_new(ProcessId joining, const std::string& section) override;
    void seated(ProcessId replacement) override;
    void begun(const std::string& line) override;
    void warn(const std::string& line) override;
    void note(const std::string& line) override { state_.console.note(line); }

   private:
    State& state_;
  };

  State(const ResolvedJob& job, Console& terminal, RunMemory& kept)
      : plan(job),
        console(terminal),
        job_start(kept.start.get()),
        place(job.options.launch_info.place),
        hosts(hosts_of(job)),
        process(static_cast<std::uint32_t>(place.rank)),
        trace(process, "process " + std::to_string(place.rank), trace_options(job)),
        snapshots(CheckpointStore(std::filesystem::path(job.train.out) / "checkpoints",
                                  {job.train.keep_checkpoints, {}, prepared_files_folder(job)}),
                  job.train.shadow_every > 0),
        memory(kept),
        record(kept.record),
        losses(static_cast<std::size_t>(std::ranges::count(record->recoveries, false, &Recovery::rollback))) {}

  /// Processes that join are on hosts of their own, unless the job is on a single host.
  static std::vector<std::uint32_t> hosts_of(const ResolvedJob& job) {
    const LaunchInfo& run = job.options.launch_info;
    std::vector<std::uint32_t> hosts = run.place.hosts;
    for (std::size_t more = run.place.processes > 1 ? most_joining(job.graph) : 0; more > 0; --more) {
      hosts.push_back(run.several_hosts() ? hosts.back() + 1 : 0);
    }
    return hosts;
  }
  static TraceOptions trace_options(const ResolvedJob& job) {
    TraceOptions options;
    options.on = !job.options.trace.empty();
    return options;
  }
  [[nodiscard]] bool is_root() const { return place.rank == 0; }
  [[nodiscard]] bool started_by_rank_0() const {
    return place.launcher == JobLauncher::maestro || plan.options.launch_info.starts_others();
  }
  /// Whether this process is rank 0, or has a trained section.
  [[nodiscard]] bool has_state() const {
    return is_root() || std::ranges::any_of(own_places(), [this](const ReplicaPlacement& at) {
             return plan.graph.node(at.section).trained();
           });
  }
  [[nodiscard]] bool joins_later() const { return !place.joins.empty(); }
  /// Whether a user has started this process to join the run.
  [[nodiscard]] bool by_hand() const { return joins_later() && std::getenv("MAESTRO_PARENT") == nullptr; }
  /// Returns how many processes may join the run beside those of its start.
  [[nodiscard]] std::size_t joining() const { return hosts.size() - place.hosts.size(); }
  [[nodiscard]] bool several() const { return place.processes > 1; }
  [[nodiscard]] std::filesystem::path record_path() const {
    return std::filesystem::path(plan.train.out) / record_folder;
  }
  [[nodiscard]] std::filesystem::path trace_part(std::int64_t of_rank) const {
    const std::filesystem::path& trace_file = plan.options.trace;
    const bool through = is_written_through(trace_file);  // no file can be made beside a device or a pipe
    const auto base = through ? std::filesystem::path(plan.train.out) / "trace" : trace_file;
    return base.string() + ".part" + std::to_string(of_rank);
  }

  const ResolvedJob& plan;
  Console& console;
  JobStart* job_start;  // null: this process is alone
  ProcessEnv place;
  std::vector<std::uint32_t> hosts;  // of each process that the job may have
  ProcessId process;
  TraceRecorder trace;
  SnapshotWriter snapshots;
  std::shared_ptr<RunJournal> journal;            // of rank 0; null: the run keeps nothing
  bool record_whole = false;                      // at the end: the files have all lines
  std::optional<Result<RunRehearsal>> rehearsal;  // of rank 0, at the end
  Status report_written;                          // likewise
  RunMemory& memory;
  std::shared_ptr<RunRecord> record;  // of memory
  std::atomic<std::uint64_t> current_step = 0;
  std::atomic<std::uint64_t> events = 0;  // of the coordinator: CoordinatorOptions::events
  std::shared_ptr<OutcomePromise> outcome = std::make_shared<OutcomePromise>();
  cpu::CpuOperatorTable& ops = memory.ops;
  std::shared_ptr<EmulatedClock> emulated_clock;  // made with the first emulated device
  /// By section for GPUs, whose sections have separate streams; section 0 stands for all on other devices.
  std::map<std::pair<DeviceId, SectionId>, std::unique_ptr<Device>> devices;
  std::mutex collective_submit_mutex;  // ReplicaSpec::collective_submit_mutex
  /// Triggered when the run ends, before devices stop: no queued work waits for other ranks any more.
  std::shared_ptr<AbortReason> groups_end = std::make_shared<AbortReason>();
  ImportedMemories opened;
  StartPoint start;
  RunClaim claim;  // of rank 0
  RendezvousInfo rendezvous_info;
  ReplicaBuilder builder{
      plan,       ops,
      start,      memory.frozen,
      groups_end, [this](const ReplicaPlacement& at, LayoutRank of_rank) -> Device& { return *device(at, of_rank); }};
  std::vector<BuiltReplica> replicas;
  std::unique_ptr<Network> network;
  std::unique_ptr<ActorEnvironment> actors;  // below all members that actors use: destroyed first (PR-1)
  std::mutex spawned_mutex;                  // while the run runs: seats that move, and the end
  std::vector<caf::actor> spawned;
  std::vector<Seat> seats;    // of the replicas here; the supervisor's after the start
  bool seats_closed = false;  // no seat is taken any more
  std::thread starting;       // of a lost process, again
  Host host{*this};
  caf::actor supervisor;
  caf::actor coordinator;
  std::atomic<bool> begun = false;          // the coordinator exists
  std::unique_ptr<ControlService> control;  // of rank 0; may be absent. Stops before the actors (PR-1)
  std::unique_ptr<HttpService> http;        // of rank 0, with --http. Stops before the actors (PR-1)
  std::string control_socket;               // its local socket, removed on immediate exit; else empty
  std::unique_ptr<RunQuestions> questions;  // of the watchdog, on rank 0
  StopRequests stop_requests;               // of the signal thread
  std::atomic<bool> stopping = false;       // the orderly end has begun
  std::atomic<bool> leaving = false;        // before the first step
  std::atomic<std::size_t> losses = 0;      // recoveries of the run; the coordinator records those in place
  std::optional<Recovery> recovery;         // of this start, once begin_recovery() was called
  std::atomic<bool> supervised = false;     // there is a supervisor to inform
  std::atomic<bool> replaceable = false;    // rank 0 starts another process where this one ends
  Watchdog* watchdog = nullptr;             // while the run lasts
  Launcher* launcher = nullptr;             // likewise

  /// Returns the sections that the start is behind of, and their step.
  [[nodiscard]] std::map<SectionId, StepId> trained_until() const {
    std::map<SectionId, StepId> until;
    for (std::uint32_t index = 0; index < plan.graph.nodes().size(); ++index) {
      const auto found = start.stored.ahead.find(plan.graph.nodes()[index].section_name());
      if (found != start.stored.ahead.end()) until[SectionId(index)] = StepId(found->second);
    }
    return until;
  }
  [[nodiscard]] bool recovering() const { return !record->recoveries.empty(); }
  void continue_record();
  void check_surroundings() const;
  [[nodiscard]] std::shared_ptr<const KeySet> keys() const;
  void open_control();
  void open_http();
  /// Returns the device of a rank of a replica, opened at the first call.
  Device* device(const ReplicaPlacement& at, LayoutRank of_rank);
  void open_actors();
  void route_child_ends();
  void join_job();
  [[nodiscard]] std::optional<RunResult> try_to_join();
  void begin();
  [[nodiscard]] caf::actor find_root();
  [[nodiscard]] JobText job_text() const;
  [[nodiscard]] std::string build_name() const;
  [[nodiscard]] std::optional<TensorBoardWriter> open_board() const;
  void open_journal();
  [[nodiscard]] std::optional<RunGuard> make_guard() const;
  void build();
  void spawn_coordinator(LocalActors& local);
  void spawn_replicas(LocalActors& local);
  [[nodiscard]] ReplicaSpec replica_spec(const BuiltReplica& built, const Seat& seat, Epoch epoch);
  /// Returns the replica built for this seat, or the first of its section, whose values and devices the seat shares.
  [[nodiscard]] const BuiltReplica& built_for(const Seat& seat) const;
  OwnActor spawn_replica(const BuiltReplica& built, const Seat& seat, Epoch epoch);
  // Moves of seats; process_seats.cpp.
  [[nodiscard]] bool seats_may_move() const;
  [[nodiscard]] bool recovers_in_place() const;
  /// Returns what this process builds.
  [[nodiscard]] std::vector<ReplicaPlacement> own_places() const;
  [[nodiscard]] std::vector<ReplicaPlacement> joining_places(const std::string& section, ProcessId joining_process,
                                                             const std::string& wanted) const;
  /// Lets a process join the run, or leave it; of the control service. Throws JobError: the reason why not.
  [[nodiscard]] JoinTerms let_join(const SeatRequest& request);
  std::string let_leave(ProcessId leaver);
  [[nodiscard]] SeatAnswer query_supervisor(const caf::message& wanted);
  /// Throws JobError where rank 0 could start no process of an elastic section.
  void check_elastic() const;
  [[nodiscard]] bool stores_checkpoints() const {
    return plan.train.checkpoint_at_end || plan.train.checkpoint_every > 0 || plan.train.archive_every > 0;
  }
  /// On rank 0: makes room for checkpoints in memory, at the first start. Throws JobError where train.shadow_every
  /// requires it.
  void make_shadows();
  void await_start(ProcessId of_process, std::function<void()> call);
  [[nodiscard]] SeatOptions seat_options();
  /// Whether rank 0 starts a lost process of seats again.
  [[nodiscard]] bool replacements_may_come() const;
  /// From now on no seat is taken and no process started.
  void close_seats();
  static void remove_sockets_of_lost(const ProcessIdentity& lost);
  void introduce();
  CoordinatorOptions coordinator_options(const caf::actor& source);
  ProcessSummary summary() const;
  void stop();
  RunResult succeed(const RunOutcome& outcome);
  int fail(const RunOutcome& outcome);
  [[nodiscard]] bool may_recover() const;
  void begin_recovery(const std::string& cause,
                      std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now());
  void end_to_recover(const RunOutcome& outcome);
  void take_down(const RunOutcome& outcome);
  void end_to_start_again();
  /// Whether this process, which is not rank 0, can take part in another start.
  [[nodiscard]] bool may_survive() const;
  // Back to a checkpoint before a spike; process_rollback.cpp.
  [[nodiscard]] bool end_to_roll_back(RunOutcome& ended);
  [[nodiscard]] Status branch(const Rollback& way);
  [[nodiscard]] Result<std::string> keep_spike(const Rollback& way, std::uint64_t base_step) const;
  [[nodiscard]] std::uint64_t rollbacks() const;
  void stop_in_order(const std::string& reason);
  void signalled(int signal);
  [[noreturn]] void leave_before_the_start(const std::string& cause);
  [[noreturn]] void leave(int status);
  void tidy_up(const std::vector<ProcessIdentity>& lost) const;
  void remove_sockets(const std::vector<ProcessIdentity>& lost, const std::vector<std::int64_t>& children) const;
  void bound(std::string phase, std::chrono::milliseconds most) const;
  void close_failed_start(const std::string& problem);
  void watch_progress();
  [[nodiscard]] StallLook look();
  void describe_trace();
  void write_trace(const RunOutcome& ended);
  void write_report(const RunOutcome& ended);
  void write_outputs(RunResult& result, const RunOutcome& ended);
  /// Rehearses the last steps, for record and report.
  void rehearse();
  /// Waits for the last lines of the record, before stop() ends their writer.
  void close_record();
  /// Returns the rows of the record's files, or of memory where the files do not have all.
  [[nodiscard]] ReportRows report_rows() const;
  /// Throws JobError for what a run would refuse between its plan and its first step, of `check`; nothing stays of it.
  void check_start() const;
  void print_header() const;
  /// The sections' models, of `check`.
  void print_models() const;
  /// The estimate of memory, of `check`.
  void print_memory() const;
  /// "section 'student' replica 0".
  [[nodiscard]] std::string label_of(SectionId section, ReplicaIndex replica) const {
    return "section '" + plan.graph.node(section).name + "' replica " + std::to_string(replica.value());
  }
  /// " on host b", where there are several.
  [[nodiscard]] std::string on_host(std::uint32_t host) const;
  /// Prints a note, from any thread.
  void note(const std::string& line);
};

}  // namespace maestro
