// SPDX-License-Identifier: Apache-2.0
// Brings the processes of a job together before anything is built: finds the listen address and the credentials of this
// process; rank 0 starts the other processes if required and admits them, any other process joins rank 0.
//
// JS-1 (local start): on a single host the processes meet at a local socket that only their user can open, and listen
//       on loopback.
// JS-2 (mutual TLS between hosts): between hosts every control connection is TLS with mutual certificates, and requires
//       the job's token.
// JS-3 (same reason): when the job cannot begin, every reached process ends with the same line.
// JS-4 (no orphan at start): until begun(), a process that rank 0 has started ends within two seconds of rank 0; on
//       each host at most one process prints that.
// JS-5 (another start): begin_again() opens the same address again, with the same keys. Processes of the earlier start
//       that still run join there; rank 0 starts those that do not run, or that end before they have joined. One that
//       is stopped, or has not joined in time, is lost: gather() throws `peer_lost`.
// JS-6 (one provider): rank 0 decides before the first start whether "auto" is shared memory, by the room that all
//       processes need, and every process of every start follows.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/launch/launcher.hpp"
#include "actors/launch/parent_watch.hpp"
#include "actors/launch/rendezvous.hpp"
#include "actors/process/job_access.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/job/config.hpp"
#include "runtime/observe/console.hpp"
#include "transport/fabric/provider.hpp"

namespace maestro {

/// Result of the rendezvous: data of a run that all its processes share.
struct RendezvousInfo {
  Epoch epoch;
  std::string secret;        ///< unknown to processes of other runs
  std::string root_address;  ///< address of rank 0's supervisor
  std::uint16_t root_port = 0;
  std::string shared_file;                                         ///< in the output folder, written by rank 0
  std::string resume;                                              ///< RunOptions::resume of rank 0
  SharedMemoryUse shared_memory = SharedMemoryUse::where_offered;  ///< the same for all processes
};
/// Returns the data of a run of a single process.
[[nodiscard]] RendezvousInfo new_rendezvous_info();

/// Prefix of the file in the output folder by which hosts detect that they share it; digits follow.
inline constexpr const char* shared_file_prefix = ".maestro-";

/// Data that must be equal in all processes.
struct JobText {
  std::string job;                          ///< TOML
  std::filesystem::path shared_folder;      ///< folder of the run's files on all hosts; empty: none
  std::chrono::milliseconds silence{4000};  ///< limit after which a process counts as lost (RV-5)
  std::string resume;                       ///< of rank 0; need not be equal
  std::size_t most_processes = 1;           ///< that the job may have
};

class JobStart {
 public:
  /// Checks options, addresses and keys. Throws JobError.
  JobStart(JobStartOptions options, Console& console);
  ~JobStart();
  JobStart(const JobStart&) = delete;
  JobStart& operator=(const JobStart&) = delete;

  /// Returns the addresses, the host name and the keys of this process.
  [[nodiscard]] const JobAccess& access() const { return access_; }

  /// Publishes rank 0's supervisor on an address and a port (0: any), and returns the port.
  using Publish = std::function<std::uint16_t(const RendezvousInfo&, const std::string& address, std::int64_t port)>;
  /// Rank 0: blocks until all processes have joined. Throws JobError.
  [[nodiscard]] RendezvousInfo gather(Launcher& launcher, const JobText& job, const Publish& publish);
  /// Rank 0: starts a lost process again and blocks until it has joined the running job of `info`. Throws JobError,
  /// also after stop_starting(). Called by one thread at a time, as the next three.
  void start_again(Launcher& launcher, const JobText& job, const RendezvousInfo& info, ProcessId process);
  /// Rank 0: returns what a process that a user starts needs to join the running job of `info` as `process`, in place
  /// of the replicas of a section. Throws JobError, as after stop_starting().
  [[nodiscard]] JoinTerms open_door(const JobText& job, const RendezvousInfo& info, ProcessId process,
                                    const ElasticJoin& request);
  /// Rank 0: starts a process on this host that joins so, and blocks until it has. Throws JobError.
  void start_new(Launcher& launcher, const JobText& job, const RendezvousInfo& info, ProcessId process,
                 const std::string& section);
  /// Rank 0: calls `start`, then blocks until the process of open_door() has joined. Throws JobError.
  void await_joining(const JobText& job, const std::function<void()>& start = {});
  /// The process of start_again() or open_door() takes part in the run: its end is no end of a start any more.
  /// Thread-safe.
  void started_again();
  /// No process is started again any more. Thread-safe.
  void stop_starting();
  /// Other ranks: blocks likewise. Throws JobError.
  [[nodiscard]] RendezvousInfo join(const JobText& job);
  /// Whether a process that rank 0 has started has printed why the job cannot begin.
  [[nodiscard]] bool child_printed() const { return child_printed_; }
  /// Whether this process prints why the job cannot begin; otherwise another process of this host does.
  [[nodiscard]] bool prints_refusals() const;
  /// Returns true for the first of the processes that rank 0 has started on its host to call this: each has a reason of
  /// its own why the job cannot begin, and one is printed. True also where that cannot be found out.
  [[nodiscard]] static bool is_first_to_refuse();
  /// Reports that the job cannot begin, for a reason that only this process sees: the others receive the reason if they
  /// join within a few seconds. Best effort.
  void withdraw(const std::string& reason) noexcept;
  /// Throws JobError when rank 0's output folder, which must hold the files of this host, is not visible here.
  void check_shared_folder(const RendezvousInfo& info) const;

  /// Begins another start of the run (JS-5). `running`: the processes of the earlier one that take part.
  void begin_again(std::vector<std::string> command, std::set<ProcessId> running);
  /// Called when all connections are made: removes the shared file. Thread-safe, idempotent.
  void tidy_start();
  /// Called when no other start can follow, or the job ends: also removes the keys generated for this run.
  /// Thread-safe, idempotent.
  void tidy();

  /// Called when this process is built: the supervisors watch each other from now on (JS-4).
  void begun() { parent_watch_.reset(); }
  /// Ends this process with status 1, because rank 0 is lost. Thread-safe: the first call prints.
  [[noreturn]] void leave(const std::string& line);

  /// A child of the launcher has ended. Thread-safe.
  void child_ended(ProcessId process, const std::string& how);
  /// A child of the launcher was stopped by a signal, or continues. Thread-safe.
  void child_stopped(ProcessId process, bool stopped);
  /// Returns a line about a child that a signal has stopped for `silence`. Every call counts `since`, the time since
  /// the call before, so that time in which this process was stopped itself, as by Ctrl-Z, does not count. Thread-safe.
  [[nodiscard]] std::optional<std::string> stopped_child(std::chrono::milliseconds silence,
                                                         std::chrono::milliseconds since);
  /// Receives the end of a child that all processes have joined before, also where that was before route_child_ends();
  /// `again`: of one that start_again() has started.
  using ChildEndRoute = std::function<void(ProcessId, const std::string& how, bool again)>;
  /// Empty: no receiver.
  void route_child_ends(ChildEndRoute route);

 private:
  [[nodiscard]] SharedMemoryUse decide_on_shared_memory(std::size_t processes) const;
  void find_providers();
  [[nodiscard]] RendezvousOptions rendezvous_options(const JobText& job, const RendezvousInfo& info) const;
  [[nodiscard]] ProcessEnv place_of_server() const;
  /// Starts the processes that neither run nor have joined. `counts`: the run relies on them from now on.
  void start_missing(Launcher& launcher, bool counts);
  /// Opens a rendezvous at which all are present but `process`.
  void expect(const JobText& job, const RendezvousInfo& info, ProcessId process);
  [[nodiscard]] std::string write_shared_file(const std::filesystem::path& folder);
  void watch_parent();
  void look_at_stopped_children(std::chrono::milliseconds silence);
  /// A process of an earlier start may be frozen without a signal.
  void look_at_silent_survivors(std::chrono::milliseconds silence);
  /// Starts the processes of an earlier start that have ended since (JS-5).
  void replace_survivors(Launcher& launcher);

  JobAccess access_;
  Console& console_;
  std::atomic<bool> child_printed_ = false;  // an ended child has printed the reason
  std::int64_t parent_ = 0;                  // rank 0, when it is this process's parent
  std::filesystem::path shared_file_;
  std::optional<SharedMemoryUse> shared_memory_;  // on rank 0, once it has decided (JS-6)
  std::mutex mutex_;
  std::unique_ptr<RendezvousServer> server_;
  std::int64_t port_ = 0;                          // of the server at the first start
  std::set<ProcessId> survivors_;                  // of an earlier start, until all processes have joined
  std::chrono::milliseconds survivors_awaited_{};  // in this start
  std::vector<JoinRequest> joined_;                // of the start
  std::optional<ProcessId> starting_;              // again
  bool gathering_ = false;                         // gather() runs: the end of a child may be a reason not to begin
  bool stopped_starting_ = false;
  ChildEndRoute route_;
  std::vector<std::pair<ProcessId, std::string>> unrouted_;  // ends that no route has received
  std::map<ProcessId, std::chrono::milliseconds> stopped_;   // stopped children: time that was counted
  std::atomic<bool> leaving_ = false;
  std::unique_ptr<ParentWatch> parent_watch_;  // last: its thread uses all above
};

}  // namespace maestro
