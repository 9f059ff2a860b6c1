// SPDX-License-Identifier: Apache-2.0
// Brings the processes of a job together before anything is built: finds this process's listen address and credentials;
// rank 0 starts the other processes if required and admits them, any other process joins rank 0.
//
// JS-1 (local start): on a single host the processes meet at a local socket that only their user can open, and listen
//       on loopback.
// JS-2 (mutual TLS between hosts): between hosts every control connection is TLS with mutual certificates, and requires
//       the job's token.
// JS-3 (same reason): if the job cannot begin, every reached process ends with the same line.
// JS-4 (no orphan at start): until begun(), a process that rank 0 has started ends within two seconds after rank 0; on
//       each host at most one process prints this.
// JS-5 (another start): begin_again() opens the same address again, with the same keys. Processes from the earlier
//       start that still run join there; rank 0 starts the missing processes, also if they end before they have joined.
//       A process that is stopped or has not joined in time is lost: gather() throws `peer_lost`.
// JS-6 (one provider): rank 0 decides before the first start whether "auto" is shared memory, by the room that all
//       processes need, and all processes follow in every start.
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

/// Result of the rendezvous: data that all processes of a run share.
struct RendezvousInfo {
  Epoch epoch;
  std::string secret;        ///< unknown to processes of other runs
  std::string root_address;  ///< address of rank 0's supervisor
  std::uint16_t root_port = 0;
  std::string shared_file;                                         ///< file in the output folder, written by rank 0
  std::string resume;                                              ///< rank 0's RunOptions::resume
  SharedMemoryUse shared_memory = SharedMemoryUse::where_offered;  ///< the same for all processes
};
/// Returns the data of a single-process run.
[[nodiscard]] RendezvousInfo new_rendezvous_info();

/// Prefix of the file in the output folder that shows hosts whether they share it; digits follow.
inline constexpr const char* shared_file_prefix = ".maestro-";

/// Data that must be equal in all processes.
struct JobText {
  std::string job;                          ///< TOML
  std::filesystem::path shared_folder;      ///< folder of the run's files on all hosts; empty: none
  std::chrono::milliseconds silence{4000};  ///< limit after which a process counts as lost (RV-5)
  std::string resume;                       ///< RunOptions::resume; only rank 0's counts
  std::size_t most_processes = 1;           ///< maximum number of processes
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

  /// Publishes rank 0's supervisor at an address and a port (0: any), and returns the port.
  using Publish = std::function<std::uint16_t(const RendezvousInfo&, const std::string& address, std::int64_t port)>;
  /// Rank 0: blocks until all processes have joined. Throws JobError.
  [[nodiscard]] RendezvousInfo gather(Launcher& launcher, const JobText& job, const Publish& publish);
  /// Rank 0: starts a replacement process and blocks until it has joined the running job of `info`. Throws JobError,
  /// also after stop_starting(). Called by one thread at a time, together with the next three functions.
  void start_again(Launcher& launcher, const JobText& job, const RendezvousInfo& info, ProcessId process);
  /// Rank 0: returns the terms on which a process that a user starts joins the running job of `info` as `process`, for
  /// the section in `request`. Throws JobError, also after stop_starting().
  [[nodiscard]] JoinTerms open_door(const JobText& job, const RendezvousInfo& info, ProcessId process,
                                    const ElasticJoin& request);
  /// Rank 0: starts a process on this host that joins on such terms, and blocks until it has joined. Throws JobError.
  void start_new(Launcher& launcher, const JobText& job, const RendezvousInfo& info, ProcessId process,
                 const std::string& section);
  /// Rank 0: calls `start`, then blocks until the process of open_door() has joined. Throws JobError.
  void await_joining(const JobText& job, const std::function<void()>& start = {});
  /// Records that the process of start_again() or open_door() takes part in the run, after which its end is not a
  /// failed start. Thread-safe.
  void started_again();
  /// Refuses further starts of processes. Thread-safe.
  void stop_starting();
  /// Other ranks: blocks until all processes have joined. Throws JobError.
  [[nodiscard]] RendezvousInfo join(const JobText& job);
  /// Returns whether a process that rank 0 has started has printed why the job cannot begin.
  [[nodiscard]] bool child_printed() const { return child_printed_; }
  /// Returns whether this process prints why the job cannot begin; otherwise another process on this host does.
  [[nodiscard]] bool prints_refusals() const;
  /// Returns true for the first caller among the processes that rank 0 has started on its host: each has found a reason
  /// why the job cannot begin, and only one prints it. Also returns true if the first caller cannot be determined.
  [[nodiscard]] static bool is_first_to_refuse();
  /// Reports that the job cannot begin, for a reason that only this process has found. Other processes receive it if
  /// they join within a few seconds. Best effort.
  void withdraw(const std::string& reason) noexcept;
  /// Throws JobError if rank 0's output folder, which must hold this host's files, is not visible on this host.
  void check_shared_folder(const RendezvousInfo& info) const;

  /// Begins another start of the run (JS-5). `running`: processes from the earlier start that take part.
  void begin_again(std::vector<std::string> command, std::set<ProcessId> running);
  /// Removes the shared file, after all connections were made. Thread-safe, idempotent.
  void tidy_start();
  /// Also removes the keys generated for this run, if no further start can follow or the job ends. Thread-safe,
  /// idempotent.
  void tidy();

  /// Ends the watch over rank 0 after this process was built, as the supervisors watch each other from then on (JS-4).
  void begun() { parent_watch_.reset(); }
  /// Ends this process with status 1, because rank 0 is lost. Thread-safe: the first call prints.
  [[noreturn]] void leave(const std::string& line);

  /// Records that a child of the launcher has ended. Thread-safe.
  void child_ended(ProcessId process, const std::string& how);
  /// Records that a child of the launcher was stopped by a signal, or continues. Thread-safe.
  void child_stopped(ProcessId process, bool stopped);
  /// Returns a line about a child that a signal has stopped for `silence`. Every call counts `since`, the time since
  /// the previous call, so that time does not count while this process itself is stopped, as by Ctrl-Z. Thread-safe.
  [[nodiscard]] std::optional<std::string> stopped_child(std::chrono::milliseconds silence,
                                                         std::chrono::milliseconds since);
  /// Receives the end of a child after all processes have joined, also if it ended before route_child_ends(). `again`:
  /// start_again() had started the child.
  using ChildEndRoute = std::function<void(ProcessId, const std::string& how, bool again)>;
  /// Sets the receiver; empty: none.
  void route_child_ends(ChildEndRoute route);

 private:
  [[nodiscard]] SharedMemoryUse decide_on_shared_memory(std::size_t processes) const;
  void find_providers();
  [[nodiscard]] RendezvousOptions rendezvous_options(const JobText& job, const RendezvousInfo& info) const;
  [[nodiscard]] ProcessEnv place_of_server() const;
  /// Starts the processes that neither run nor have joined. `counts`: the run relies on them from now on.
  void start_missing(Launcher& launcher, bool counts);
  /// Opens a rendezvous at which all processes except `process` are present.
  void expect(const JobText& job, const RendezvousInfo& info, ProcessId process);
  [[nodiscard]] std::string write_shared_file(const std::filesystem::path& folder);
  void watch_parent();
  void look_at_stopped_children(std::chrono::milliseconds silence);
  /// Fails the start if a process from the earlier start remains silent, as it may hang without a signal.
  void look_at_silent_survivors(std::chrono::milliseconds silence);
  /// Starts processes again that have ended since the earlier start (JS-5).
  void replace_survivors(Launcher& launcher);

  JobAccess access_;
  Console& console_;
  std::atomic<bool> child_printed_ = false;  // an ended child has printed the reason
  std::int64_t parent_ = 0;                  // pid of rank 0 if it is this process's parent
  std::filesystem::path shared_file_;
  std::optional<SharedMemoryUse> shared_memory_;  // rank 0: none before it has decided (JS-6)
  std::mutex mutex_;
  std::unique_ptr<RendezvousServer> server_;
  std::int64_t port_ = 0;                          // port of the server at the first start
  std::set<ProcessId> survivors_;                  // processes from the earlier start, until all have joined
  std::chrono::milliseconds survivors_awaited_{};  // time in this start
  std::vector<JoinRequest> joined_;                // requests at the start
  std::optional<ProcessId> starting_;              // process that is starting again
  bool gathering_ = false;                         // gather() runs: the end of a child may end the start
  bool stopped_starting_ = false;
  ChildEndRoute route_;
  std::vector<std::pair<ProcessId, std::string>> unrouted_;  // ends that no route has received
  std::map<ProcessId, std::chrono::milliseconds> stopped_;   // counted time of stopped children
  std::atomic<bool> leaving_ = false;
  std::unique_ptr<ParentWatch> parent_watch_;  // last: its thread uses all above
};

}  // namespace maestro
